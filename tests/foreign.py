"""Virtual environments of other programs: the agent, and the stores that it brings.

They are made with pip, once, in the user's cache folder (`XDG_CACHE_HOME`), and used by later runs
as long as their requirements stay the same. Without a package index their tests fail.
HERMES_ORM_SKIP_AGENT=1 leaves those tests out, and the summary says so.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
ASYNC_AGENT = "async-hermes-agent==0.20.4.1"
EXISTING_POSTGRES_STORE = "async-hermes-agent[postgres]==0.20.4.1"
UPSTREAM_AGENT = "hermes-agent==0.19.0"

SKIP = "HERMES_ORM_SKIP_AGENT"


@dataclass(frozen=True)
class Environment:
    """A Python that has other packages than the one that runs the tests."""

    python: Path

    def start(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start its Python in text mode with the given arguments and further variables."""
        variables = {name: text for name, text in os.environ.items() if "PYTHON" not in name}
        return subprocess.Popen(
            [self.python, *arguments],
            env={**variables, "PYTHONPATH": str(PROJECT), **(env or {})},
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def run(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        **options: Any,
    ) -> str:
        """Run its Python to the end; return what it printed. A failure fails the test."""
        with self.start(*arguments, env=env, **options) as process:
            try:
                printed, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                printed, errors = process.communicate()
                pytest.fail(f"not finished after {timeout} s:\n{printed}\n{errors}", pytrace=False)
        if process.returncode:
            pytest.fail(f"ended with {process.returncode}:\n{printed}\n{errors}", pytrace=False)
        return printed


def project_requirements() -> list[str]:
    """Return what an installation of the project with its PostgreSQL drivers asks for."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["postgres"], *extras["psycopg"]]


def environment(*requirements: str, base: Environment | None = None) -> Environment:
    """Return an environment that has the requirements; packages of `base` are seen in it, too."""
    if os.environ.get(SKIP) == "1":
        pytest.skip(f"{SKIP}=1 leaves the tests of foreign programs out")
    recipe = "\n".join([sys.version, sys.base_prefix, str(base), *requirements])
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hermes-orm-tests"
    caches.mkdir(parents=True, exist_ok=True)
    folder = caches / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    python = folder / "bin" / "python"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process of this machine makes it, the others wait
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, symlinks=True)
            if base:
                (packages_of(folder) / "base.pth").write_text(
                    str(packages_of(base.python.parents[1]))
                )
            install(python, *requirements)
            (folder / "complete").touch()
    return Environment(python)


def packages_of(folder: Path) -> Path:
    """Return the folder of an environment's packages."""
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def install(python: Path, *requirements: str) -> None:
    """Install packages with the pip of this process's environment, or fail the test."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-compile"]
    done = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(
            f"These tests need {', '.join(requirements)} from a package index, and pip did not get "
            f"them. {SKIP}=1 leaves the tests out. pip said:\n{done.stderr}",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def async_agent() -> Environment:
    """async-hermes-agent and the project: `run_agent`, `hermes_state`, `hermes_orm`."""
    return environment(ASYNC_AGENT, *project_requirements())


@pytest.fixture(scope="session")
def existing_postgres_store(async_agent: Environment) -> Environment:
    """async-hermes-agent with the SQLAlchemy 2.0 that its `hermes_state_postgres` pins.

    `hermes_orm` does not work here: it needs SQLAlchemy 2.1.
    """
    return environment(EXISTING_POSTGRES_STORE, base=async_agent)


@pytest.fixture(scope="session")
def upstream_agent() -> Environment:
    """hermes-agent of upstream, alone."""
    return environment(UPSTREAM_AGENT)
