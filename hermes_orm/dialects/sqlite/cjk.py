"""The tokenizer `cjk_unicode61`, an extension of SQLite that is used where it is installed."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

from hermes_orm.home import hermes_home

VARIABLE: Final = "HERMES_FTS5_CJK_SO"
DEFAULT_NAME: Final = "lib/libfts5_cjk.so"
"""Below the Hermes home."""

logger = logging.getLogger("hermes_orm.sqlite")


def find() -> Path | None:
    """Return the file of the extension; None where there is none."""
    named = os.environ.get(VARIABLE)
    path = Path(named).expanduser() if named else hermes_home() / DEFAULT_NAME
    return path if path.is_file() else None


def load(driver: Any, path: Path) -> bool:
    """Load the extension into a connection; whether that succeeded.

    Loading is permitted around this call only; a Python that cannot load any has no tokenizer.
    """
    if not hasattr(driver, "enable_load_extension"):
        return False
    driver.enable_load_extension(True)
    try:
        driver.load_extension(str(path))
    except Exception:
        logger.warning("the CJK tokenizer %s cannot be loaded", path, exc_info=True)
        return False
    finally:
        driver.enable_load_extension(False)
    return True
