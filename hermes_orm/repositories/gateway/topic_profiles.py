"""Topics from before profiles: all of `default`, although their session keys may name another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ClauseElement, ColumnElement, and_, delete, exists, not_, select, update
from sqlalchemy.orm import aliased

from hermes_orm.arguments import mapping
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.bound_rows import bound_rows, row_list
from hermes_orm.dialects.expressions import bound_texts, insert_from, text_list
from hermes_orm.gateway_rows import CrossedTopic, RelabelledTopics
from hermes_orm.models import TelegramTopicBinding, TelegramTopicMode
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.gateway.namespaces import AGENT, AGENT_END
from hermes_orm.repositories.gateway.topic_tables import TopicTableRepository
from hermes_orm.repositories.sessions.keys import DEFAULT_PROFILE, session_key_profile
from hermes_orm.session_text import lookup_key

_KEYS: Final = ("chat_id", "thread_id", "profile_name")
_OWN_PREFIX: Final = "agent:main:%"

_binding = TelegramTopicBinding
_mode = TelegramTopicMode
_IS_DEFAULT: Final = _binding.profile_name == DEFAULT_PROFILE


def _given() -> Any:
    return bound_rows("rows", dict.fromkeys(_KEYS, TEXT)).subquery("given")


def _is_given(given: Any) -> ColumnElement[bool]:
    is_its = and_(_binding.chat_id == given.c.chat_id, _binding.thread_id == given.c.thread_id)
    return and_(_IS_DEFAULT, is_its)


def _crossed() -> ClauseElement:
    return (
        select(_binding.chat_id, _binding.thread_id, _binding.session_key)
        .where(
            _IS_DEFAULT,
            _binding.session_key >= AGENT,
            _binding.session_key < AGENT_END,
            _binding.session_key.not_like(_OWN_PREFIX),
        )
        .order_by(_binding.chat_id, _binding.thread_id)
    )


def _delete_duplicates() -> ClauseElement:
    given, taken = _given(), aliased(_binding)
    is_taken = (
        exists()
        .where(
            taken.profile_name == given.c.profile_name,
            taken.chat_id == given.c.chat_id,
            taken.thread_id == given.c.thread_id,
        )
        .where(_is_given(given))
    )
    return delete(_binding).where(is_taken)


def _relabel() -> ClauseElement:
    given = _given()
    return update(_binding).where(_is_given(given)).values(profile_name=given.c.profile_name)


def _copy_modes() -> ClauseElement:
    given = _given()
    names = [column.key for column in _mode.__table__.columns]
    columns = [getattr(_mode, name) for name in names if name != "profile_name"]
    rows: Any = (
        select(given.c.profile_name, *columns)
        .distinct()
        .join_from(given, _mode, _mode.chat_id == given.c.chat_id)
        .where(_mode.profile_name == DEFAULT_PROFILE)
    )
    return (
        insert_from(_mode, ["profile_name", *(column.key for column in columns)], rows)
        .on_conflict_do_nothing(index_elements=["profile_name", "chat_id"])
        .returning(_mode.chat_id)
    )


def _delete_followed() -> ClauseElement:
    has_topics = exists().where(_IS_DEFAULT, _binding.chat_id == _mode.chat_id)
    return delete(_mode).where(
        _mode.profile_name == DEFAULT_PROFILE,
        _mode.chat_id.in_(bound_texts("chats")),
        not_(has_topics),
    )


CROSSED = Prepared(_crossed)
DELETE_DUPLICATES = Prepared(_delete_duplicates)
RELABEL = Prepared(_relabel)
COPY_MODES = Prepared(_copy_modes)
DELETE_FOLLOWED = Prepared(_delete_followed)


class TopicProfileRepository(TopicTableRepository):
    """Topics that are to be given to the profile of their session."""

    def find_profile_less_telegram_topic_rows(self) -> list[CrossedTopic]:
        """Return the topics of `default` whose session key names another profile."""
        found: list[CrossedTopic] = []
        for chat, thread, key in self.tx.all(CROSSED) if self.has(_binding) else ():
            profile = session_key_profile(key)
            if profile is not None and profile != DEFAULT_PROFILE:
                found.append(
                    {
                        "chat_id": chat,
                        "thread_id": thread,
                        "session_key": key,
                        "key_profile": profile,
                    }
                )
        return found

    def relabel_telegram_topic_rows(self, rows: Sequence[Mapping[str, Any]]) -> RelabelledTopics:
        """Give topics of `find_profile_less_telegram_topic_rows` to the profile of their key.

        One that the profile has already is deleted. The mode of the chat follows, unless the
        profile has one; that of `default` stays while it has topics there. Returns how many.
        """
        result: RelabelledTopics = {
            "bindings_relabelled": 0,
            "bindings_duplicates_removed": 0,
            "mode_rows_relabelled": 0,
        }
        self.mend()
        given_rows = [mapping(row, "a row") for row in rows]
        wanted = {
            (lookup_key(r.get("chat_id")), lookup_key(r.get("thread_id"))) for r in given_rows
        }
        moves = [
            (topic["chat_id"], topic["thread_id"], topic["key_profile"])
            for topic in self.find_profile_less_telegram_topic_rows()
            if (topic["chat_id"], topic["thread_id"]) in wanted
        ]
        if not moves:
            return result
        given = {"rows": row_list(moves)}
        result["bindings_duplicates_removed"] = self.tx.run(DELETE_DUPLICATES, given)
        result["bindings_relabelled"] = self.tx.run(RELABEL, given)
        if self.has(_mode):
            chats = [row[0] for row in self.tx.all(COPY_MODES, given)]
            self.tx.run(DELETE_FOLLOWED, {"chats": text_list(chats)})
            result["mode_rows_relabelled"] = len(chats)
        return result
