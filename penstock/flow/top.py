"""What `top` read_orders by: `"price desc, bid_id"`."""

from __future__ import annotations

from penstock.errors import DeclarationError
from penstock.flow.expressions import Columns, check_expression
from penstock.flow.plan import Order


def read_orders(by: object, columns: Columns) -> tuple[Order, ...]:
    """Read columns and expressions, separated by commas, each with `desc`, or with `asc`, which is the default."""
    from penstock.flow.reading import top_level_parts

    if not isinstance(by, str) or not by.strip():
        raise DeclarationError(f"an order is needed; found {by!r}", hint='write by="price desc"')
    return tuple(_read_order(part, columns) for part in top_level_parts(by))


def _read_order(text: str, columns: Columns) -> Order:
    from penstock.flow.reading import tokens_of

    tokens = tokens_of(text)
    words = [token.word for token in tokens]
    if "nulls" in words[-2:-1]:
        raise DeclarationError(
            f"nulls are always the smallest values; found {text!r}",
            hint="leave 'nulls first' and 'nulls last' out, or order by coalesce(...)",
        )
    has_direction = len(words) > 1 and words[-1] in ("asc", "desc")
    expression = text[: tokens[-1].start].strip() if has_direction else text
    checked = check_expression(expression, columns, instead="aggregate with group_by(...).agg(...) first")
    return Order(checked, descending=has_direction and words[-1] == "desc")
