"""Stores that other programs left."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.historic.stores import OldStore

LAYOUT_5 = "postgres-v25-storage5"


@pytest.fixture
def make_old(historic_stores: Path, make_location: Callable[..., str]) -> Callable[..., OldStore]:
    """`make_old(driver)`: the dump of the existing store, loaded into an empty database."""

    def make(driver: str) -> OldStore:
        sidecar = json.loads((historic_stores / f"{LAYOUT_5}.json").read_text())
        old = OldStore(make_location(driver, empty=True), sidecar)
        old.run((historic_stores / f"{LAYOUT_5}.sql").read_text())
        return old

    return make
