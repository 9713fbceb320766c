"""Statements: a text cut at its semicolons, and what each of them is."""

from __future__ import annotations

from penstock.errors import DeclarationError
from penstock.sql.refused import STATEMENTS
from penstock.sql.text import Span, Text

KINDS = ("create", "select", "with", "explain", "set", "(")


def statements(text: Text) -> list[Span]:
    """The statements of a text; those with nothing in them are left out."""
    found: list[Span] = []
    start = 0
    tokens = text.tokens
    for number, token in enumerate([*tokens, None]):
        if token is None or token.raw == ";":
            if number > start:
                found.append(Span(text, tokens[start:number], tokens[start].start))
            start = number + 1
    return found


def unknown(statement: Span) -> DeclarationError:
    """The refusal of a statement that there is not."""
    word = statement.keywords[0]
    if word in STATEMENTS:
        name, hint = STATEMENTS[word]
        return statement.refusal("sql", f"{name} is not there", hint)
    return statement.refusal(
        "sql",
        f"a statement begins with CREATE, SELECT, WITH, EXPLAIN or SET; found {statement.tokens[0].raw!r}",
    )
