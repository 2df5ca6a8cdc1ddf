"""The names of the module `hermes_state_postgres`, whose `SessionDB` is for PostgreSQL only."""

from __future__ import annotations

import os

import hermes_orm
from hermes_orm import *  # noqa: F403  (every public name, under the module's own name)
from hermes_orm import __all__ as __all__
from hermes_orm.location import locate_postgres


class SessionDB(hermes_orm.SessionDB):  # type: ignore[no-redef]  # takes less than the imported
    """A session store on PostgreSQL; any other location is a ValueError that names the forms."""

    def __init__(
        self, db_path: str | os.PathLike[str] | None = None, read_only: bool = False
    ) -> None:
        locate_postgres(db_path)
        super().__init__(db_path, read_only)
