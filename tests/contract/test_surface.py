"""The public names are those of the specification, with its signatures.

`tests/fixtures/surface.json` is the specification's list. A name that disappears and a name that
arrives both fail until a list says so.
"""

import builtins
import inspect
import json
import sqlite3
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import hermes_orm
from hermes_orm import SessionDB

FIXTURES = Path(__file__).parents[1] / "fixtures"
SURFACE: list[dict[str, Any]] = json.loads((FIXTURES / "surface.json").read_text())["names"]
OWNERS = {"SessionDB": SessionDB, "hermes_orm": hermes_orm}
ATTRIBUTES = {"db_path", "read_only"}  # engine.md section 1
OURS = {
    "iter_export",  # exporting a store that does not fit into memory
    "usage_statistics",  # what operators ask
}


def signature_text(function: Any) -> str:
    """Return the signature as surface.json spells it: without annotations and self."""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(plain))


def keywords_of(function: Any) -> set[str]:
    """Return the names that a `**filters: Unpack[...]` parameter accepts."""
    (name,) = (
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.VAR_KEYWORD
    )
    hints = typing.get_type_hints(function, vars(sys.modules[function.__module__]))
    (keywords,) = typing.get_args(hints[name])
    return set(typing.get_type_hints(keywords))


def class_named(dotted: str) -> type:
    module, _, name = dotted.rpartition(".")
    owner = sqlite3 if module == "sqlite3" else builtins if hasattr(builtins, name) else hermes_orm
    found = getattr(owner, name)
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize(
    "entry", [pytest.param(entry, id=f"{entry['owner']}.{entry['name']}") for entry in SURFACE]
)
def test_public_name_is_as_specified(entry: dict[str, Any]) -> None:
    owner = OWNERS[entry["owner"]]
    found = getattr(owner, entry["name"])
    kind = entry["kind"]
    if kind == "constant":
        value = entry.get("value", found)
        assert (set(found) == set(value)) if isinstance(value, list) else (found == value)
        return
    if kind == "exception":
        assert all(issubclass(found, class_named(base)) for base in entry["bases"])
        found = found.__init__
    assert signature_text(found) == entry["signature"]
    is_coroutine = entry.get("async", kind == "coroutine")
    assert inspect.iscoroutinefunction(inspect.unwrap(found)) == is_coroutine
    if kind == "static":
        assert isinstance(inspect.getattr_static(owner, entry["name"]), staticmethod)
    if "keywords" in entry:
        assert keywords_of(found) == set(entry["keywords"])


def test_store_has_no_other_public_name() -> None:
    public = {name for name in dir(SessionDB) if not name.startswith("_")}
    specified = {entry["name"] for entry in SURFACE if entry["owner"] == "SessionDB"}
    assert public - ATTRIBUTES - OURS <= specified
