"""Where sessions work: directory, repository and branch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import bindparam, case, func, or_, select, update

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, text_list
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.rows import WorkspaceRow
from hermes_orm.session_text import lookup_key, session_text

_THIS: Final = Session.id == bindparam("session_id")


@lru_cache
def store_place(*, replaces: bool) -> Prepared:
    """Return the statement that moves a session; blank git values replace stored ones, or not."""
    cwd = bindparam("cwd", type_=TEXT)
    moves = case((Session.cwd.is_distinct_from(cwd), 1), else_=0)
    values: dict[str, Any] = {
        "cwd": cwd,
        "git_metadata_generation": Session.git_metadata_generation + moves,
    }
    for name in ("git_branch", "git_repo_root"):
        given = bindparam(name, type_=TEXT)
        values[name] = given if replaces else func.coalesce(given, getattr(Session, name))
    return Prepared(update(Session).where(_THIS).values(values))


ROOTLESS = Prepared(
    select(Session.id, Session.cwd)
    .where(
        Session.cwd.in_(bound_texts("cwds")),
        or_(Session.git_repo_root.is_(None), Session.git_repo_root == ""),
    )
    .order_by(Session.id)
    .with_for_update(key_share=True)
)
STORE_ROOT = Prepared(update(Session).where(_THIS).values(git_repo_root=bindparam("root")))


@lru_cache
def count_by_cwd(*, include_archived: bool) -> Prepared:
    """Return the statement that groups sessions by working directory."""
    last_active = func.max(func.coalesce(Session.ended_at, Session.started_at))
    statement = (
        select(Session.cwd, func.count(), last_active)
        .where(func.trim(Session.cwd) != "")
        .group_by(Session.cwd)
        .order_by(Session.cwd)
    )
    return Prepared(statement if include_archived else statement.where(Session.archived == 0))


def workspace_key(row: Mapping[str, Any]) -> str | None:
    """Return what sessions of one workspace share: the repository, or else the directory."""
    root, cwd = ((row.get(key) or "").strip() for key in ("git_repo_root", "cwd"))
    return root or cwd or None


class WorkspaceRepository(Repository):
    """Rows of `sessions`: where they work."""

    def update_session_cwd(
        self,
        session_id: str,
        cwd: str,
        git_branch: str | None = None,
        git_repo_root: str | None = None,
        replace_git_meta: bool = False,
    ) -> None:
        """Store the working directory, and the git values that are not blank.

        Blank ones leave what is stored, or clear it with `replace_git_meta`. Nothing happens
        without a directory.
        """
        if session_id and cwd:
            row = {
                "session_id": lookup_key(session_id),
                "cwd": session_text(cwd),
                "git_branch": _stripped(git_branch),
                "git_repo_root": _stripped(git_repo_root),
            }
            self.tx.run(store_place(replaces=bool(replace_git_meta)), row)

    def backfill_repo_roots(self, roots: Mapping[str, str | None]) -> None:
        """Store the repository of all sessions of these directories that have none yet."""
        rows = self.tx.all(ROOTLESS, {"cwds": text_list(roots)})
        self.tx.run_many(STORE_ROOT, [{"session_id": key, "root": roots[cwd]} for key, cwd in rows])

    def distinct_session_cwds(self, include_archived: bool = False) -> list[WorkspaceRow]:
        """Return each working directory with its number of sessions and the time of the last."""
        rows = self.tx.all(count_by_cwd(include_archived=bool(include_archived)))
        return [{"cwd": cwd, "sessions": number, "last_active": at} for cwd, number, at in rows]


def _stripped(value: str | None) -> str | None:
    return (session_text(value) or "").strip() or None
