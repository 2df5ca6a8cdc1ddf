"""The text of a query tree in the languages of the two databases."""

from collections.abc import Callable

from hermes_orm.search.query import Node, Unit, fold
from hermes_orm.search.vector import lexemes, pair_lexemes
from hermes_orm.session_text import fold_ascii


def to_fts5(node: Node) -> str:
    """Return the FTS5 expression of a tree, for the word index and the trigram index alike."""
    return fold(
        node,
        unit=_fts5_string,
        all_of=" AND ".join,
        any_of=" OR ".join,
        # Parentheses, not NOT after NOT: FTS5 limits the depth of an expression.
        but_not=lambda kept, dropped: f"{kept} NOT ({dropped})",
    )


def to_tsquery(node: Node) -> str:
    """Return the text of the tsquery, to be cast, for a tree of words."""
    return _tsquery(node, _tsquery_phrase)


def to_exact_pair_tsquery(node: Node) -> str:
    """Return the text of the tsquery that a tree of CJK pairs is, to be cast."""
    return _tsquery(node, lambda unit: " & ".join(pair_lexemes(unit.text)))


def _tsquery(node: Node, unit: Callable[[Unit], str]) -> str:
    return fold(
        node,
        unit=unit,
        all_of=" & ".join,
        any_of=" | ".join,
        but_not=lambda kept, dropped: f"{kept} & !({dropped})",
    )


def to_pair_tsquery(node: Node) -> str | None:
    """Return the text of a tsquery that every hit of a substring search satisfies.

    It asks for the CJK pairs of the units; None when a hit need not hold any.
    """
    return fold(
        node,
        unit=lambda unit: " & ".join(pair_lexemes(unit.text)) or None,
        all_of=lambda parts: " & ".join(filter(None, parts)) or None,
        any_of=lambda parts: " | ".join(filter(None, parts)) if all(parts) else None,
        but_not=lambda kept, dropped: kept,
    )


def spellings(unit: Unit) -> tuple[str, ...]:
    """Return the texts of which one occurs, once A to Z are folded, where the unit does.

    A unit with other cased letters has a spelling for each usual case.
    """
    text = unit.text
    variants = [text]
    if any(not letter.isascii() and letter.lower() != letter.upper() for letter in text):
        variants += [text.lower(), text.upper(), text.capitalize()]
    return tuple(dict.fromkeys(map(fold_ascii, variants)))


def _fts5_string(unit: Unit) -> str:
    string = f'"{unit.text}"'  # no unit holds a quote
    return f"{string}*" if unit.prefix else string


def _tsquery_phrase(unit: Unit) -> str:
    phrase = " <-> ".join(f"'{lexeme}'" for lexeme in lexemes(unit.text))
    return f"{phrase}:*" if unit.prefix else phrase
