"""Tables whose changes another tool writes to a topic as messages: what may be declared."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow.plan import MessageFormat, Messages, TimeUnit
from penstock.suggest import closest

MESSAGE_SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
"""The columns of a topic with messages of Debezium or Maxwell. A tombstone has no value, or is a delete marker."""


def check_messages(
    name: str,
    format_: MessageFormat | None,
    topic: str | None,
    source_table: str | None,
    time_unit: TimeUnit | None,
) -> Messages | None:
    """How the messages of a table are read; None if its topic has the rows themselves."""
    if format_ is None:
        for option, value in (("topic", topic), ("source_table", source_table), ("time_unit", time_unit)):
            if value is not None:
                raise DeclarationError(
                    f"{option} is for tables whose changes are messages of another tool; found {option}={value!r}",
                    hint='say which tool writes them: format="debezium"',
                )
        return None
    _check_choice("format", format_, get_args(MessageFormat))
    if time_unit is not None:
        _check_choice("time_unit", time_unit, get_args(TimeUnit))
    if source_table is not None and format_ != "maxwell":
        raise DeclarationError(
            f"source_table chooses among the tables in a topic of Maxwell; found source_table={source_table!r}",
            hint="leave it out: Debezium writes each table to a topic of its own",
        )
    return Messages(format_, source_table or name, time_unit)


def _check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise DeclarationError(
            f"{option} is one of {', '.join(choices)}; found {value!r}", hint=closest(str(value), choices)
        )
