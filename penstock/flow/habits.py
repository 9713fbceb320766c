"""What people write out of habit, from PySpark, pandas, polars, and what to write instead: all answers in one place.

What is harmless is accepted: lists of names, `filter`. Everything else is refused with the spelling that was probably
meant. Objects of other libraries are recognised by their module: none of these libraries is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from penstock.errors import DeclarationError
from penstock.flow.location import Declaring, caller_location
from penstock.suggest import closest
from penstock.uncaught import show_plainly_if_uncaught

_QUERY = 'rows exist when the app runs: app.query("select ...") asks its views, rig.view("name") in a test'
_SORT = (
    'views have no order: sort when asking, app.query("select ... order by ..."); the first rows are .top(10, by=...)'
)
_AGGREGATE = 'write .agg({0}="{0}(amount)"), or .group_by("country").agg({0}="{0}(amount)")'
_NEW_COLUMN = 'write .with_columns(total="price * quantity")'
_FUNCTION = "a function from DataFrame to DataFrame goes to .map(...); expressions are text"
_NULLS = 'nulls are handled with text: .where("x is not null"), .with_columns(x="coalesce(x, 0)")'
_UNIQUE = 'write .distinct("id", within="1 hour"); .latest("id") keeps the newest row of each id'

INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("groupBy", "groupby", "groupByKey", "key_by"), 'write .group_by("country")'),
    **dict.fromkeys(("withColumn", "withColumns", "with_column", "assign", "mutate"), _NEW_COLUMN),
    **dict.fromkeys(("selectExpr", "project"), 'write .select("order_id", total="price * quantity")'),
    **dict.fromkeys(("withColumnRenamed", "withColumnsRenamed"), 'write .rename(new_name="old_name")'),
    **dict.fromkeys(("orderBy", "order_by", "sort", "sort_values", "sort_by"), _SORT),
    **dict.fromkeys(("limit", "head", "take", "nlargest", "first", "tail"), _SORT),
    **dict.fromkeys(("drop_duplicates", "dropDuplicates", "unique", "dropDuplicatesWithinWatermark"), _UNIQUE),
    **dict.fromkeys(("unionAll", "unionByName", "concat", "append"), "write .union(other)"),
    **dict.fromkeys(("merge", "crossJoin", "join_asof"), 'write .join(other, on="id", ...)'),
    **dict.fromkeys(("apply", "transform", "foreach", "foreachBatch", "flat_map", "pipe"), _FUNCTION),
    **dict.fromkeys(("fillna", "dropna", "na", "isnull"), _NULLS),
    **dict.fromkeys(("collect", "show", "toPandas", "to_pandas", "toArrow", "display", "iterrows"), _QUERY),
    **dict.fromkeys(("schema", "dtypes", "printSchema", "describe"), "the names of the columns are in .columns"),
    **dict.fromkeys(
        ("write", "writeStream", "writeTo", "to_parquet"), 'write app.view("name", rows), or app.sink(...)'
    ),
    **dict.fromkeys(("cache", "persist", "checkpoint", "repartition"), "leave it out: the app takes care of that"),
    **{name: _AGGREGATE.format(name) for name in ("sum", "avg", "mean", "min", "max")},
    "count": 'write .agg(n="count(*)"), or .group_by("country").agg(n="count(*)")',
    "alias": "columns of one name are renamed before a join: .rename(...)",
    "withWatermark": 'lateness is declared with the topic: app.topic(..., time="placed_at", lateness="10 seconds")',
    "pivot": "write an aggregate for each column: .agg(a=\"sum(x) filter (where kind = 'a')\")",
    "explode": "use map: .map(lambda rows: rows.selectExpr('*', 'explode(items) as item'))",
    "as_of": 'write orders.join(customers, on=..., as_of="placed_at")',
    "latest": 'to look up what is known now, write orders.join(customers, on=..., as_of="now")',
    "changes": ".changes() is for tables; the events of a stream are its changes",
    "distinct": 'the rows of a table differ in its key; group by others: .group_by("country").agg(n="count(*)")',
}
"""By the name that streams, tables and groups do not have: what to write instead."""

_LATENESS = 'lateness is declared with the topic: app.topic(..., time="placed_at", lateness="10 seconds")'
_TIME = 'the event time is declared with the topic: app.topic(..., time="placed_at")'
_WINDOW = 'write .window(tumbling("1 minute")), or hopping, sliding, session'
_ORDER = 'the order is text, with desc if the largest come first: .top(10, by="price desc")'
_PER = 'write .top(10, by="price desc", per=["category"])'
_PAIRS = 'write on={"customer_id": "id"}, the column of the left side and that of the right side'
_SAME_NAMES = "columns of one name are renamed before a join: .rename(...)"

KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "window": {
        **dict.fromkeys(("lateness", "watermark", "allowed_lateness", "grace"), _LATENESS),
        **dict.fromkeys(("time", "on", "column"), _TIME),
        **dict.fromkeys(("size", "length", "duration", "every", "slide", "gap", "tumbling", "hopping"), _WINDOW),
        **dict.fromkeys(("group_by", "by", "per"), 'write .window(tumbling("1 minute")).group_by("country")'),
    },
    "top": {
        **dict.fromkeys(("order_by", "key", "on", "column", "columns", "sort"), _ORDER),
        **dict.fromkeys(("desc", "descending", "ascending", "reverse"), _ORDER),
        **dict.fromkeys(("partition_by", "group_by", "groups", "over"), _PER),
        **dict.fromkeys(("limit", "count", "k", "rows"), 'the number of rows comes first: .top(10, by="price desc")'),
    },
    "latest": dict.fromkeys(("key", "by", "on", "per", "columns", "subset"), 'write .latest("customer_id")'),
    "distinct": {
        **dict.fromkeys(("on", "by", "key", "columns", "subset"), _UNIQUE),
        **dict.fromkeys(("window", "time", "lateness"), _UNIQUE),
    },
    "drop": dict.fromkeys(("columns", "column", "labels", "axis"), 'write .drop("note")'),
    "union": dict.fromkeys(("other", "others"), "write .union(other)"),
    "join": {
        **dict.fromkeys(("left_on", "right_on"), _PAIRS),
        **dict.fromkeys(("suffixes", "suffix", "lsuffix", "rsuffix"), _SAME_NAMES),
        "by": 'write on="customer_id"',
        "time": 'write as_of="placed_at"',
        **dict.fromkeys(("tolerance", "window"), 'write within="1 hour"'),
        "lateness": _LATENESS,
    },
}
"""By verb, and by a keyword that it does not have: what to write instead."""

HOW = {
    **dict.fromkeys(("outer", "fullouter", "full_outer"), "full"),
    **dict.fromkeys(("leftouter", "left_outer"), "left"),
    **dict.fromkeys(("rightouter", "right_outer"), "right"),
    **dict.fromkeys(("leftsemi", "left_semi"), "semi"),
    **dict.fromkeys(("leftanti", "left_anti"), "anti"),
}
"""Other names of the kinds of joins."""

_EXPRESSION_LIBRARIES = ("pyspark", "polars", "pandas", "ibis")
_SIMPLE_COLUMN = re.compile(r"Column<'(\w+|\w+\(\w+\))'>")


class UnknownNameError(DeclarationError, AttributeError):
    """A DeclarationError that `hasattr`, and `getattr` with a default, understand."""


class SuggestsNames:
    """Answers a name that does not exist with the one that was probably meant. Type checkers see nothing of it."""

    __slots__ = ()
    _instead: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or name == "node":
                raise AttributeError(name)
            raise _unknown_name(self, name)


class AnswersHabits(SuggestsNames):
    """Answers whoever takes a declaration for a DataFrame or a list of rows."""

    __slots__ = ()
    _instead: ClassVar[Mapping[str, str]] = INSTEAD

    if not TYPE_CHECKING:

        def __getitem__(self, item: object) -> NoReturn:
            names = [item] if isinstance(item, str) else item
            plain = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
            select = f".select({', '.join(map(_quoted, names))})" if plain else '.select("order_id")'
            raise _refusal(
                f"columns are not taken with brackets; found [{item!r}]",
                f'write {select}; in expressions a column is text: .where("amount > 100")',
            )

        def __len__(self) -> NoReturn:
            raise _refusal("the number of its rows is not known when it is declared", f"{INSTEAD['count']}; {_QUERY}")

        def __iter__(self) -> NoReturn:
            raise _refusal("it is a declaration, and its rows cannot be iterated over", _QUERY)

        def __bool__(self) -> NoReturn:
            raise _refusal("it is a declaration, and neither true nor false", _QUERY)


def names_in(columns: Iterable[Any]) -> Iterator[Any]:
    """Names of columns, given one by one or in lists."""
    for column in columns:
        if isinstance(column, list | tuple):
            yield from column
        else:
            yield column


def check_text(value: object, what: str) -> str:
    """Refuse anything but text where a column or an expression is expected."""
    if isinstance(value, str):
        return value
    raise DeclarationError(f"{what}; found {value!r}", hint=_text_hint(value))


def unnamed_refusal(values: Sequence[object], verb: str, example: str) -> DeclarationError:
    """The answer to expressions without a name."""
    suggestions = [f'{_name_for(text)}="{text}"' for value in values for text in _expressions_in(value)]
    hint = f".{verb}({', '.join(suggestions) or example})"
    found = ", ".join(map(repr, values))
    return DeclarationError(f"every column needs a name; found {found}", hint=f"did you mean {hint}?")


def refuse_mappings(values: Iterable[object]) -> None:
    """Refuse `rename({"old": "new"})` and `rename(columns={...})`."""
    for value in values:
        if isinstance(value, Mapping):
            pairs = ", ".join(f'{new}="{old}"' for old, new in value.items())
            raise DeclarationError(
                f'columns are renamed as new_name="old_name"; found {value!r}', hint=f"did you mean .rename({pairs})?"
            )
        check_text(value, 'columns are renamed as new_name="old_name"')


def _expressions_in(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{function}({column})" for column, function in value.items()]
    if simple := _SIMPLE_COLUMN.fullmatch(repr(value)):
        return [simple[1]]
    return [value] if isinstance(value, str) else []


def _name_for(expression: str) -> str:
    name = re.sub(r"\W+", "_", expression).strip("_").lower()
    return name if name.isidentifier() else "name"


def _text_hint(value: object) -> str | None:
    if simple := _SIMPLE_COLUMN.fullmatch(repr(value)):
        return f'did you mean "{simple[1]}"? Expressions are text'
    if type(value).__module__.partition(".")[0] in _EXPRESSION_LIBRARIES:
        return 'expressions are text: "amount > 100" instead of F.col("amount") > 100; PySpark is for .map(...)'
    return _FUNCTION if callable(value) else None


def unknown_public_name(module: str, name: str, known: Sequence[str]) -> UnknownNameError:
    """The answer to a name that a module does not have."""
    hint = closest(name, known) or f"it has {', '.join(each for each in known if not each.startswith('_'))}"
    show_plainly_if_uncaught()
    return UnknownNameError(f"{caller_location()}: {module} has no '{name}'", hint=hint)


def _unknown_name(owner: object, name: str) -> UnknownNameError:
    kind, known = (
        getattr(type(owner), "_shown_as", type(owner).__name__),
        [verb for verb in dir(type(owner)) if not verb.startswith("_")],
    )
    columns = getattr(getattr(getattr(owner, "node", None), "shape", None), "columns", None) or ()
    hint = type(owner)._instead.get(name) if isinstance(owner, SuggestsNames) else None
    if name in columns:
        hint = f'a column is text: .select("{name}"), .where("{name} is not null")'
    hint = hint or closest(name, known) or f"it has {', '.join(known)}"
    show_plainly_if_uncaught()
    return UnknownNameError(f"{caller_location()}: {kind} has no '{name}'", hint=hint)


def _refusal(message: str, hint: str) -> DeclarationError:
    show_plainly_if_uncaught()
    try:
        with Declaring("rows"):
            raise DeclarationError(message, hint=hint)
    except DeclarationError as error:
        return error


def _quoted(name: str) -> str:
    return f'"{name}"'
