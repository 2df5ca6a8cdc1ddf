"""A module is one concept and a function one thought: the limits of size."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hermes_orm"
MODULE_LINES = 400
FUNCTION_LINES = 50


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.name)
def test_module_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{path}:{node.lineno} {node.name}"
