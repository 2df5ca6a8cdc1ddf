"""How a repository method, a plan or a service becomes a public coroutine, signature kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hermes_orm.database import DEFAULT_PATIENCE, Database, Scope, Work
from hermes_orm.errors import ReadOnlyStoreError
from hermes_orm.repositories.base import Plans, Repository

P = ParamSpec("P")
R = TypeVar("R")
RepoT = TypeVar("RepoT", bound=Repository)
PlansT = TypeVar("PlansT", bound=Plans)
Described = TypeVar("Described", bound=Callable[..., Any])


class Store(Protocol):
    """What an operation needs of the store it is a method of."""

    database: Database


Operation = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


def reads(
    method: Callable[Concatenate[RepoT, P], R],
    *,
    scope: Scope = "snapshot",
    settled: bool = False,
) -> Operation[P, R]:
    """Expose a repository method as a coroutine that reads committed data.

    `scope="statement"` when the method sends exactly one SELECT; the default is one snapshot.
    `settled`: queued usage is stored first.
    """
    owner = Repository.owner_of(method)

    @functools.wraps(method)
    async def operation(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if settled:
            await self.database.settle()
        return await self.database.read(lambda tx: method(owner(tx), *args, **kwargs), scope=scope)

    return _described(operation, inspect.signature(method))


def writes(
    method: Callable[Concatenate[RepoT, P], R],
    *,
    patience: float = DEFAULT_PATIENCE,
    scope: Scope = "transaction",
    alone: bool = False,
    settled: bool = False,
) -> Operation[P, R]:
    """Expose a repository method as a coroutine that runs in one write transaction.

    `settled`: queued usage is stored first.
    """
    owner = Repository.owner_of(method)

    @functools.wraps(method)
    async def operation(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_writable(self, method)
        if settled:
            await self.database.settle()
        return await self.database.write(
            lambda tx: method(owner(tx), *args, **kwargs),
            patience=patience,
            scope=scope,
            alone=alone,
        )

    return _described(operation, inspect.signature(method))


def plans(
    method: Callable[Concatenate[PlansT, P], Work[R]],
    *,
    patience: float = DEFAULT_PATIENCE,
    scope: Scope = "transaction",
) -> Operation[P, R]:
    """Expose a plan as a coroutine: its arguments are encoded first, then its unit is written."""
    owner = Plans.owner_of(method)

    @functools.wraps(method)
    async def operation(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_writable(self, method)
        work = method(owner(self.database.dialect), *args, **kwargs)
        return await self.database.write(work, patience=patience, scope=scope)

    signature = inspect.signature(method)
    returned = str(signature.return_annotation).removeprefix("Work[").removesuffix("]")
    return _described(operation, signature.replace(return_annotation=returned))


def runs(
    method: Callable[Concatenate[Database, P], Coroutine[Any, Any, R]],
    *,
    modifies: bool = False,
    joins: bool = True,
) -> Operation[P, R]:
    """Expose a service, a flow of several transactions, as a coroutine.

    `joins`: it can be part of a `transaction()`; not one that waits, or that must commit in steps.
    """

    @functools.wraps(method)
    async def operation(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if modifies:
            _check_writable(self, method)
        if not joins:
            self.database.stand_alone(method.__name__)
        return await method(self.database, *args, **kwargs)

    return _described(operation, _of_store(method))


def streams(
    method: Callable[Concatenate[Database, P], AsyncIterator[R]],
) -> Callable[Concatenate[Any, P], AsyncIterator[R]]:
    """Expose a service that reads portion by portion, for `async for`."""

    @functools.wraps(method)
    def operation(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        return method(self.database, *args, **kwargs)

    return _described(operation, _of_store(method))


def _of_store(method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a service as that of a method of the store."""
    signature = inspect.signature(method)
    database, *arguments = signature.parameters.values()
    store = database.replace(name="self", annotation=inspect.Parameter.empty)
    return signature.replace(parameters=[store, *arguments])


def _described(operation: Described, signature: inspect.Signature) -> Described:
    # The agent unwraps an operation before it asks whether it is a coroutine function.
    del vars(operation)["__wrapped__"]
    vars(operation)["__signature__"] = signature
    operation.__annotations__ = {
        **operation.__annotations__,
        "return": signature.return_annotation,
    }
    return operation


def _check_writable(store: Store, method: Callable[..., Any]) -> None:
    if store.database.read_only:
        raise ReadOnlyStoreError.of(method.__name__)
