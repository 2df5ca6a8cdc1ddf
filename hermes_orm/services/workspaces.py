"""Workspaces: nothing is sent when there is nothing to do."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_orm.arguments import mapping
from hermes_orm.database import Database
from hermes_orm.repositories.sessions.workspaces import WorkspaceRepository
from hermes_orm.session_text import session_text


async def backfill_repo_roots(database: Database, cwd_to_root: Mapping[str, str]) -> None:
    """Store the repository of all sessions of the given directories that have none yet.

    Pairs with an empty directory or repository are ignored.
    """
    roots = {
        stored: session_text(root)
        for cwd, root in mapping(cwd_to_root, "cwd_to_root").items()
        if root and (stored := session_text(cwd))
    }
    if roots:
        await database.write(lambda tx: WorkspaceRepository(tx).backfill_repo_roots(roots))
