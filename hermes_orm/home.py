"""The Hermes home directory and the default database path in it.

`DEFAULT_DB_PATH` is computed at import. A host may assign another value to that name, in any module
of `DEFAULT_DB_PATH_MODULES` (usually `hermes_orm.DEFAULT_DB_PATH = path`). Every new store asks
`default_db_path()`: an assigned value wins, otherwise the path follows the home of that moment.
"""

import os
import re
import sys
from contextvars import ContextVar, Token
from pathlib import Path

_PROFILE = re.compile("[a-z0-9][a-z0-9_-]{0,63}")

_override: ContextVar[str] = ContextVar("hermes_home_override", default="")


def set_home_override(home: str | os.PathLike[str] | None) -> Token[str]:
    """Use `home` in the current context; return the token that `reset_home_override` takes.

    None and the empty string mean "no override".
    """
    return _override.set("" if home is None else os.fspath(home))


def reset_home_override(token: Token[str]) -> None:
    """Restore the override that was active before the call that returned `token`."""
    _override.reset(token)


def hermes_home() -> Path:
    """Return the home: context override, else `HERMES_HOME`, else the platform's default.

    Nothing is expanded and the file system is not touched.
    """
    named = _override.get() or os.environ.get("HERMES_HOME", "").strip()
    return Path(named) if named else _platform_home()


def _platform_home() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "").strip()
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hermes"
    return Path.home() / ".hermes"


def hermes_root(home: Path) -> Path:
    """Return the directory that `home` and the homes of other profiles belong to, resolved.

    A profile's home is `profiles/<name>` in it; everything in the platform's default is its own.
    """
    home, platform = home.resolve(), _platform_home().resolve()
    if home.is_relative_to(platform):
        return platform
    return home.parent.parent if home.parent.name == "profiles" else home


def profile_of(db_path: Path, root: Path) -> str | None:
    """Return the profile that owns a database file; None when its place in `root` tells none."""
    path = db_path.resolve()
    if path.name != "state.db":
        return None
    if path.parent == root:
        return "default"
    name = path.parent.name
    is_profile = path.parent.parent == root / "profiles" and _PROFILE.fullmatch(name)
    return name if is_profile else None


def _home_db_path() -> Path:
    return hermes_home() / "state.db"


DEFAULT_DB_PATH: Path = _home_db_path()
"""Path of the default database at import time; assign to it to move the default."""

DEFAULT_DB_PATH_MODULES = ("hermes_orm", "hermes_orm.compat.hermes_state", __name__)
"""Modules whose name `DEFAULT_DB_PATH` a host may assign to; the first changed one wins."""

_imported_default = DEFAULT_DB_PATH


def default_db_path() -> Path:
    """Return the database path of a store that is constructed now without one."""
    for module in DEFAULT_DB_PATH_MODULES:
        value = getattr(sys.modules.get(module), "DEFAULT_DB_PATH", _imported_default)
        if value != _imported_default:
            return Path(value)
    return _home_db_path()
