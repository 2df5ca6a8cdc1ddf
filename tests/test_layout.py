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
            assert lines_of_code(node) <= FUNCTION_LINES, f"{path}:{node.lineno} {node.name}"


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines after the signature and the docstring, which a contract may make long."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
