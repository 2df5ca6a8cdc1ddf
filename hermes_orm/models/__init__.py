"""Declarative models of the newest schema, one class per table."""

from hermes_orm.models.base import Base
from hermes_orm.models.delegations import AsyncDelegation
from hermes_orm.models.deliveries import DeliveryObligation
from hermes_orm.models.gateway import (
    ConversationGeneration,
    GatewayHeartbeat,
    GatewayHygieneState,
    GatewayRouting,
)
from hermes_orm.models.leases import CompressionLock, SessionTurnLease
from hermes_orm.models.messages import Message
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION, SchemaVersion, StateMeta
from hermes_orm.models.own import AlembicVersion, MessageSearch, SessionRecency
from hermes_orm.models.sessions import Session, SystemPrompt
from hermes_orm.models.topics import TelegramTopicBinding, TelegramTopicMode
from hermes_orm.models.usage import SessionModelUsage

__all__ = [
    "HEAD_REVISION",
    "SCHEMA_VERSION",
    "AlembicVersion",
    "AsyncDelegation",
    "Base",
    "CompressionLock",
    "ConversationGeneration",
    "DeliveryObligation",
    "GatewayHeartbeat",
    "GatewayHygieneState",
    "GatewayRouting",
    "Message",
    "MessageSearch",
    "SchemaVersion",
    "Session",
    "SessionModelUsage",
    "SessionRecency",
    "SessionTurnLease",
    "StateMeta",
    "SystemPrompt",
    "TelegramTopicBinding",
    "TelegramTopicMode",
]
