"""What tells whether two databases hold the same rows of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_MODULUS: Final = 1 << 256


@dataclass
class Digest:
    """The number of rows and a hash of their portable values, whatever their order."""

    rows: int = 0
    total: int = 0

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take in portable rows."""
        for row in rows:
            octets = repr(row).encode(errors="surrogatepass")
            self.total += int.from_bytes(hashlib.sha256(octets).digest(), "big")
            self.rows += 1
        self.total %= _MODULUS

    @property
    def hex(self) -> str:
        """The hash as text."""
        return f"{self.total:064x}"
