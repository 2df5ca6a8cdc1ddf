"""Conversations: transcripts as a model sees them."""

from __future__ import annotations

from hermes_orm.dialects.base import ALL_ROWS
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.messages.alternation import repair_alternation as repaired
from hermes_orm.repositories.messages.projection import CONVERSATION_COLUMNS, Projection
from hermes_orm.repositories.messages.transcripts import BEFORE_ALL, displayed_rows, session_rows
from hermes_orm.rows import ConversationMessage
from hermes_orm.session_text import lookup_key


class ConversationRepository(Repository):
    """Messages in the shape that providers accept."""

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
        include_row_ids: bool = False,
    ) -> list[ConversationMessage]:
        """Return the live messages of a session, in the order of their row ids.

        `include_ancestors` puts those of the sessions it descends from among them, up to a branch,
        and drops user messages that were replayed; `include_inactive` adds archived and undone
        ones; `repair_alternation` merges neighbours and drops answers that nobody asked for;
        `include_row_ids` gives each message its `_row_id`. Unknown sessions have none.
        """
        key = lookup_key(session_id)
        if key is None:
            return []
        rows = displayed_rows if include_ancestors else session_rows
        statement = rows(CONVERSATION_COLUMNS, with_inactive=bool(include_inactive))
        params = {"session_id": key, "from_id": BEFORE_ALL, "limit": ALL_ROWS, "offset": 0}
        projection = Projection(
            deduplicate=bool(include_ancestors), with_row_ids=bool(include_row_ids)
        )
        projection.add(self.tx.each(statement, params))
        return repaired(projection.messages) if repair_alternation else projection.messages
