"""A transaction that keeps a pooled connection over several units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from hermes_orm.dialects.base import DEFAULT_PATIENCE, Work
from hermes_orm.dialects.postgresql.errors import translate
from hermes_orm.dialects.postgresql.lines import is_closed
from hermes_orm.dialects.postgresql.pool import clean_up
from hermes_orm.dialects.postgresql.transaction import PostgreSQLTransaction
from hermes_orm.dialects.transport import HeldTransaction

if TYPE_CHECKING:
    from hermes_orm.dialects.postgresql.engine import PostgreSQLTransport

T = TypeVar("T")


class HeldServerTransaction(HeldTransaction):
    """Runs units on one checked-out connection; `let_go` gives its permit back."""

    def __init__(
        self,
        transport: PostgreSQLTransport,
        connection: AsyncConnection,
        let_go: Callable[[], None],
    ) -> None:
        super().__init__(transport.dialect)
        self._transport = transport
        self.connection = connection
        self._let_go = let_go
        self._is_open = True

    async def start(self, begin: str) -> None:
        """Send `begin`; a failure leaves a connection that `end` takes care of."""
        await self._call(lambda tx: self._transport.begin_in(tx, begin, DEFAULT_PATIENCE))

    async def _run(self, work: Work[T]) -> T:
        try:
            return await self._call(work)
        except Exception as error:  # noqa: BLE001  (it goes on, as callers see it)
            raise translate(error, lost=await self._is_lost()) from None

    async def _is_lost(self) -> bool:
        if self.connection.invalidated:
            return True
        return is_closed((await self.connection.get_raw_connection()).driver_connection)

    async def _commit(self) -> None:
        await self._call(PostgreSQLTransaction.commit)
        self._is_open = False

    async def _call(self, work: Callable[[PostgreSQLTransaction], T]) -> T:
        def run(connection: Connection) -> T:
            tx = self._transport.new_transaction(connection, one_statement=False)
            try:
                return work(tx)
            finally:
                tx.end()

        return await self._transport.run(self.connection, run)

    async def _release(self) -> None:
        try:
            if self._is_open:
                await clean_up(self.connection, in_transaction=True)
            else:
                await self.connection.close()
        finally:
            self._let_go()
