"""The container set-up names what exists, and migrates directly, before the pooler starts."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[1]
DOCKER = PROJECT / "docker"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    return found


def test_the_job_migrates_the_server_before_the_pooler_starts() -> None:
    postgres, migrate, pooler = (services()[name] for name in ("postgres", "migrate", "pgbouncer"))
    assert postgres["image"] == "postgres:17"
    assert "@postgres/" in migrate["environment"]["HERMES_DATABASE_URL"]
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert pooler["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert pooler["environment"]["POOL_MODE"] == "transaction"


def test_image_runs_the_migration_and_is_made_of_what_exists() -> None:
    build = services()["migrate"]["build"]
    dockerfile = (DOCKER / build["context"] / build["dockerfile"]).read_text()
    (command,) = re.findall(r"^CMD (.*)$", dockerfile, re.M)
    assert json.loads(command) == ["alembic", "upgrade", "head"]
    ignored = (PROJECT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (.*)$", dockerfile, re.M):
        for name in line.split()[:-1]:
            assert (PROJECT / name).exists(), name
            assert f"!{name}" in ignored, name
    for volume in services()["postgres"]["volumes"]:
        if volume.startswith("."):
            assert (DOCKER / volume.split(":")[0]).exists(), volume
