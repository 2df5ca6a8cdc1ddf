"""The store's exceptions: their bases, texts, pickles, and the host's classes (messages.md 4.3)."""

import pickle
import sqlite3
import sys
from types import ModuleType
from typing import Any

import pytest

from hermes_orm import errors

BASES: list[tuple[errors.StoreError, tuple[type[Exception], ...], list[str]]] = [
    (errors.StoreClosedError(), (RuntimeError,), ["SessionDB", "closed"]),
    (errors.EventLoopError(), (RuntimeError,), ["event loop"]),
    (errors.SchemaError("newer"), (RuntimeError,), ["newer"]),
    (
        errors.ReadOnlyStoreError.of("create_session"),
        (PermissionError, sqlite3.OperationalError),
        ["create_session", "read-only"],
    ),
    (
        errors.StoreLockedError(20.0),
        (sqlite3.OperationalError,),
        ["database is locked", "another Hermes process", "20 s"],
    ),
    (errors.WalUnsupportedError("no WAL"), (sqlite3.OperationalError,), ["no WAL"]),
    (
        errors.UnknownSessionError("s-1"),
        (sqlite3.IntegrityError, ValueError),
        ["Unknown session", "'s-1'"],
    ),
    (
        errors.CompressionSessionClosedError("s-1"),
        (RuntimeError,),
        ["'s-1'", "closed by compression"],
    ),
    (
        errors.CompressionSessionBusyError.of("s-1"),
        (RuntimeError,),
        ["lease lost", "Compression lease"],
    ),
    (
        errors.SessionCompressionInProgressError.of("s-1"),
        (errors.CompressionSessionBusyError,),
        ["Compression lease", "lost", "'s-1'"],
    ),
    (errors.SessionTurnLeaseLostError.of("s-1"), (RuntimeError,), ["turn lease lost", "'s-1'"]),
    (
        errors.SessionResumeTooLargeError(21, limit=20),
        (ValueError,),
        ["21", "20", "across its lineage", "max_resume_messages"],
    ),
    (errors.SessionExportTooLargeError("s-1", 21, 20), (ValueError,), ["s-1", "21", "20"]),
    (errors.SessionRecoverySafetyError("x"), (errors.SessionRecoveryError, RuntimeError), ["x"]),
    (errors.SessionRecoverySourceError("x"), (errors.SessionRecoveryError,), ["x"]),
]
every = pytest.mark.parametrize(
    ("error", "bases", "words"), BASES, ids=[type(error).__name__ for error, _, _ in BASES]
)


@every
def test_bases_and_text(
    error: errors.StoreError, bases: tuple[type[Exception], ...], words: list[str]
) -> None:
    assert all(isinstance(error, base) for base in bases)
    assert all(word in str(error) for word in words)
    assert error.args == (str(error),)


@every
def test_pickle(error: errors.StoreError, bases: object, words: object) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_attributes() -> None:
    resume = errors.SessionResumeTooLargeError(message_count=21)
    assert (resume.message_count, resume.limit) == (21, 20_000)
    export = errors.SessionExportTooLargeError(session_id="s", message_count=21)
    assert (export.session_id, export.message_count, export.limit) == ("s", 21, 20_000)
    assert errors.CompressionSessionClosedError("s").session_id == "s"
    assert errors.UnknownSessionError("s").session_id == "s"


class HostClosed(RuntimeError):
    def __init__(self, session_id: str, extra: int) -> None:
        super().__init__(f"host text {extra}")


class HostBusy(RuntimeError):
    pass


class HostInProgress(HostBusy):
    pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load a module `hermes_state` with error classes of its own."""
    module: Any = ModuleType("hermes_state")
    module.CompressionSessionClosedError = HostClosed
    module.CompressionSessionBusyError = HostBusy
    module.SessionCompressionInProgressError = HostInProgress
    module.SessionTurnLeaseLostError = "not a class"
    module.ReadOnlyStoreError = UnicodeDecodeError  # its layout excludes that of OSError
    monkeypatch.setitem(sys.modules, "hermes_state", module)
    return module  # type: ignore[no-any-return]


def test_an_error_is_also_one_of_the_host(host: ModuleType) -> None:
    error = errors.CompressionSessionClosedError("s")
    assert isinstance(error, HostClosed)
    assert isinstance(error, errors.CompressionSessionClosedError)
    assert type(error).__name__ == "CompressionSessionClosedError"
    assert "closed by compression" in str(error)
    assert error.session_id == "s"
    assert type(error) is type(errors.CompressionSessionClosedError("t"))


def test_the_hosts_hierarchy_is_kept(host: ModuleType) -> None:
    error = errors.SessionCompressionInProgressError.of("s")
    for error_class in (HostInProgress, HostBusy, errors.CompressionSessionBusyError):
        with pytest.raises(error_class):
            raise error
    assert not isinstance(errors.CompressionSessionBusyError.of("s"), HostInProgress)


def test_an_error_of_the_host_crosses_processes(host: ModuleType) -> None:
    text = pickle.dumps(errors.CompressionSessionClosedError("s"))
    assert isinstance(pickle.loads(text), HostClosed)
    del sys.modules["hermes_state"]
    assert type(pickle.loads(text)) is errors.CompressionSessionClosedError


def test_without_a_usable_class_the_error_stays_ours(host: ModuleType) -> None:
    assert type(errors.SessionTurnLeaseLostError.of("s")) is errors.SessionTurnLeaseLostError
    assert type(errors.UnknownSessionError("s")) is errors.UnknownSessionError
    assert type(errors.ReadOnlyStoreError.of("x")) is errors.ReadOnlyStoreError


def test_our_own_module_under_the_hosts_name_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "hermes_state", errors)
    assert type(errors.CompressionSessionClosedError("s")) is errors.CompressionSessionClosedError


def test_the_host_is_never_imported() -> None:
    errors.CompressionSessionClosedError("s")
    assert "hermes_state" not in sys.modules
