"""What Spark does between two operators: it evaluates an aggregate over the rows of groups whose answers change.

The aggregate is a list of all values, so that an answer shows every row that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.engine.operators.contract import EVENTS, HASH, MOMENT, REVISION, ROW_HASH, SECOND_HASH
from penstock.engine.operators.group_rows import MULTIPLICITY
from penstock.engine.operators.replace import Replace
from penstock.engine.operators.windows import END, START, WindowOrder
from penstock.engine.state.columns import COUNT
from tests.engine.operators.stepping import Event, Row, Way, hash_of, hashed

ANSWER = ("key", START, END, "values", REVISION)
ANSWERS = pa.schema(
    [
        ("key", pa.string()),
        (START, pa.int64()),
        (END, pa.int64()),
        ("values", pa.list_(pa.int64())),
        (COUNT, pa.int64()),
        (HASH, pa.int64()),
        (SECOND_HASH, pa.int64()),
    ]
)


def replacing(keep: int | None, *, upserts: bool = False) -> Replace:
    """The operator that keeps the answers; `keep` is None where there are no windows."""
    return Replace("answers", None if keep is None else WindowOrder(1, 0, keep), upserts=upserts)


def evaluated(rows: Iterable[Row], way: Way) -> list[Row]:
    """One row for each group, with the values of all its rows; `_n` is 0 where it has none."""
    groups: dict[tuple[str | None, int | None, int | None], list[int | None]] = {}
    for row in rows:
        values = groups.setdefault((row["key"], row.get(START), row.get(END)), [])
        values += [row["value"]] * row[MULTIPLICITY]
    return [
        hashed(
            {"key": key, START: start, END: end, "values": sorted_values(values), COUNT: len(values)},
            way,
            key,
            start,
            end,
        )
        for (key, start, end), values in groups.items()
    ]


def sorted_values(values: Iterable[int | None]) -> list[int | None]:
    return sorted(values, key=lambda value: (value is not None, value or 0))


def counted(rows: Sequence[Row], way: Way, group: Sequence[str]) -> list[Row]:
    """Each different row once, with how often it was added and how many events it stands for."""
    found: dict[tuple[object, ...], Row] = {}
    for row in rows:
        whole = tuple(value for name, value in row.items() if name not in (COUNT, EVENTS))
        if whole in found:
            found[whole][COUNT] += row[COUNT]
            found[whole][EVENTS] += row[EVENTS]
        else:
            found[whole] = {**hashed(row, way, *(row[name] for name in group)), ROW_HASH: hash_of(3, *whole)}
    return list(found.values())


def timed_rows(events: Iterable[Event], way: Way) -> list[Row]:
    """Rows with their event time, as operators get them whose windows depend on the events."""
    rows = [
        {"key": event.key, "value": event.value, MOMENT: event.time, COUNT: event.weight, EVENTS: 1} for event in events
    ]
    return counted(rows, way, ["key"])
