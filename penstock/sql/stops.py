"""Where an expression ends: at a word that begins the next clause, or the next join.

Such a word ends it only behind something complete. So a column may be called `late`: `WHERE late AND x` reads on.
"""

from __future__ import annotations

from penstock.sql.text import Span

# fmt: off
_CLAUSES = frozenset({
    "where", "group", "having", "qualify", "emit", "late", "keep", "within", "order", "limit", "offset", "window",
    "fetch", "cluster", "distribute", "sort", "union", "intersect", "except", "minus", "from", "lateral", "pivot",
    "unpivot", "tablesample", "for",
})
_JOINS = frozenset({"join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti", "asof"})
# Behind these something must follow that belongs to the expression.
_OPERATORS = frozenset({
    "and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "case", "when", "then", "else",
    "distinct", "interval", "as", "div", "escape", "any", "some", "all", "by", "on", "select", "where", "having",
    "(", "[", ",", ".", "+", "-", "*", "/", "%", "=", "==", "<=>", "<", "<=", ">", ">=", "<>", "!=", "!", "||", "&",
    "|", "^", "~", "->", "=>", "::", ":", "collate", "similar", "to",
})
# fmt: on


def stops_expression(span: Span, number: int) -> bool:
    """Whether a condition, or a list of expressions, ends before the token of this number."""
    word = span.keywords[number]
    return word in _CLAUSES | _JOINS and _complete(span, number) and not _goes_on(span, number)


def stops_condition(span: Span, number: int) -> bool:
    """Whether the condition of a join ends there: also at a comma."""
    return span.keywords[number] == "," or stops_expression(span, number)


def stops_items(span: Span, number: int) -> bool:
    """Whether the SELECT list ends there."""
    word = span.keywords[number]
    if word in ("union", "intersect") or (word == "from" and number == 0):
        return True
    # `*` is complete in a list, and an operator elsewhere.
    return word == "from" and (_complete(span, number) or span.keywords[number - 1] == "*")


def _complete(span: Span, number: int) -> bool:
    if number == 0:
        return False
    before = span.keywords[number - 1]
    behind_dot = number > 1 and span.keywords[number - 2] == "."
    return before not in _OPERATORS or (behind_dot and before not in (".", "("))


def _goes_on(span: Span, number: int) -> bool:
    return span.keywords[number : number + 2] == ("within", "group")
