"""The typed schema of a topic: what may be declared, how it may change, and how old rows are read with a new schema.

Every schema here is an Arrow schema in one normal form: the types that Spark has, each in exactly one spelling. Field
metadata holds a comment or nothing. Only whole columns can be not null, because Spark's DDL cannot express it for the
items of an array or a map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.schema.ddl import COMMENT, Field, comment_of, parse_ddl, to_ddl, type_ddl
from penstock.schema.declared import AnySchema, as_ddl
from penstock.suggest import closest

__all__ = [
    "RESERVED_PREFIX",
    "WIDER_TYPES",
    "check_columns",
    "conform",
    "evolve",
    "parse_schema",
    "to_ddl",
    "whole_schema",
]

RESERVED_PREFIX = "_penstock"
"""Reserved for columns that Penstock adds, such as offsets: no column of a user starts with it."""

WIDER_TYPES: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
"""For each type, the types that hold every one of its values exactly. Decimals are compared by their digits."""

_DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
_Test = Callable[[pa.DataType], bool]

_NORMAL_TYPES: tuple[tuple[_Test, pa.DataType], ...] = (
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_int8, pa.int8()),
    (pa.types.is_int16, pa.int16()),
    (pa.types.is_int32, pa.int32()),
    (pa.types.is_int64, pa.int64()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_float32, pa.float32()),
    (pa.types.is_float64, pa.float64()),
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date, pa.date32()),
)

_REFUSALS: tuple[tuple[_Test, str], ...] = (
    (pa.types.is_uint8, "Spark has no unsigned types; declare smallint (int16), which holds every uint8"),
    (pa.types.is_uint16, "Spark has no unsigned types; declare int (int32), which holds every uint16"),
    (pa.types.is_uint32, "Spark has no unsigned types; declare bigint (int64), which holds every uint32"),
    (pa.types.is_uint64, "Spark has no unsigned types; declare decimal(20,0), which holds every uint64"),
    (pa.types.is_time, "declare bigint and store microseconds since midnight"),
    (pa.types.is_duration, "declare bigint and store microseconds"),
    (pa.types.is_interval, "declare one integer column per unit"),
    (pa.types.is_union, "declare a struct with one field per kind"),
    (pa.types.is_null, "declare the type that its values will have, such as string"),
    (pa.types.is_run_end_encoded, "declare the type of its values"),
    (pa.types.is_decimal, "declare a decimal with at most 38 digits and a scale from 0 to its precision"),
)


def parse_schema(schema: AnySchema) -> pa.Schema:
    """Return the normal form of a declared schema, given as Spark DDL text (see `parse_ddl`) or as an Arrow schema.

    A mapping or a list of names and types, and a schema of Spark, are taken as the DDL text that they mean.

    An Arrow schema may be of any flavour whose values Spark can hold: dictionaries become their values; large, view and
    fixed-size strings, binaries and lists become the plain ones; date64 becomes date32; half floats become floats. All
    timestamps become microseconds, and all zones UTC (the instant is kept, its zone is not); an append refuses a value
    finer than a microsecond. Fields inside structs, lists and maps become nullable. Metadata other than comments is
    dropped.

    Raises DeclarationError for a type that Spark lacks, for names that are equal but for their case, and for names that
    start with `_penstock`.
    """
    given = as_ddl(schema)
    declared = parse_ddl(given) if isinstance(given, str) else given
    for name in declared.names:
        if name.lower().startswith(RESERVED_PREFIX):
            raise DeclarationError(
                f"schema: names that start with {RESERVED_PREFIX!r} are reserved; found column {name!r}",
                hint="rename the column",
            )
    if not declared.names:
        raise DeclarationError("schema: a topic needs at least one column; none was found")
    fields = _normal_fields(declared, "")
    return pa.schema(field.with_nullable(column.nullable) for field, column in zip(fields, declared, strict=True))


def evolve(old: pa.Schema, new: pa.Schema, *, keys: Collection[str] = ()) -> pa.Schema:
    """Return the schema that a topic has after its declaration changed from `old` to `new`.

    Accepted: new nullable columns; wider types (tinyint to smallint to int to bigint, int and smaller to double, float
    to double, decimals with no fewer digits on either side of the point); not null to nullable; and the same inside
    structs, arrays and map values. The order of columns in `new` does not matter: stored columns keep their positions,
    and new ones follow.

    Anything else raises one DeclarationError with a reason per column. The type of a column in `keys` cannot change at
    all: the hash of a key depends on it, and so the partition of rows already stored.
    """
    reasons: list[str] = []
    fields = _evolve_fields(old, new, "", reasons)
    reasons.extend(
        f"column {field.name!r} is part of the key, so its type cannot change"
        for field in old
        if field.name in keys and field.name in new.names and new.field(field.name).type != field.type
    )
    if reasons:
        raise DeclarationError(
            f"schema: the new declaration does not fit the rows already stored; {'; '.join(reasons)}",
            hint="add nullable columns or widen types; for any other change, copy the rows to a new topic"
            if (whole := whole_schema(old, new, keys=keys)) is None
            else f"give the whole schema: '{to_ddl(whole)}'",
        )
    return pa.schema(fields)


def whole_schema(old: pa.Schema, new: pa.Schema, *, keys: Collection[str] = ()) -> pa.Schema | None:
    """What was meant if `new` has only the columns that change: the whole schema; None if that does not fit either."""
    if set(old.names) <= set(new.names):
        return None
    added = [field for field in new if field.name not in old.names]
    whole = pa.schema([*(new.field(name) if name in new.names else old.field(name) for name in old.names), *added])
    try:
        return evolve(old, whole, keys=keys)
    except DeclarationError:
        return None


def check_columns(columns: Sequence[str] | str | None, known: Sequence[str], *, where: str) -> list[str]:
    """The columns to read, of those that are known; None means all of them. DeclarationError for any other."""
    wanted = known if columns is None else [columns] if isinstance(columns, str) else columns
    for name in wanted:
        if name not in known:
            raise DeclarationError(
                f"{where}: there is no column '{name}'; it has {', '.join(known)}", hint=closest(str(name), list(known))
            )
    return list(wanted)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch stored under an older version of `schema` as rows of `schema`.

    `schema` came from the batch's own by `evolve`. New columns are null, widened ones are cast, and all others are the
    same memory; a batch that already has the schema is returned unchanged.
    """
    if batch.schema.equals(schema):
        return batch
    lost = [name for name in batch.schema.names if name not in schema.names]
    if lost:
        raise DeclarationError(f"schema: a stored batch has columns that the schema lacks; found {', '.join(lost)}")
    return pa.RecordBatch.from_arrays([_conform_column(batch, field) for field in schema], schema=schema)


def _conform_column(batch: pa.RecordBatch, field: Field) -> pa.Array[pa.Scalar[pa.DataType]]:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows).cast(field.type)
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _normal_fields(fields: Iterable[Field], parent: str) -> list[Field]:
    """The normal form of sibling fields, all of them nullable."""
    seen: dict[str, str] = {}
    normal = []
    for field in fields:
        path = f"{parent}.{field.name}" if parent else field.name
        if not field.name:
            raise DeclarationError("schema: every column needs a name; found a column whose name is empty")
        if field.name.lower() in seen:
            raise DeclarationError(
                f"schema: column {path!r} is declared twice; found {seen[field.name.lower()]!r} and {field.name!r}",
                hint="names must differ in more than upper and lower case, because Spark does not distinguish them",
            )
        seen[field.name.lower()] = field.name
        comment = comment_of(field)
        metadata = None if comment is None else {COMMENT: comment.encode()}
        normal.append(pa.field(field.name, _normal_type(field.type, path), metadata=metadata))
    return normal


def _normal_type(type_: pa.DataType, path: str) -> pa.DataType:
    if isinstance(type_, pa.DictionaryType):
        return _normal_type(type_.value_type, path)
    if isinstance(type_, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return pa.list_(_normal_type(type_.value_type, path))
    if isinstance(type_, pa.MapType):
        return pa.map_(_normal_type(type_.key_type, path), _normal_type(type_.item_type, path))
    if isinstance(type_, pa.StructType) and type_.num_fields:
        return pa.struct(_normal_fields(type_, path))
    if isinstance(type_, pa.TimestampType):
        return pa.timestamp("us", "UTC") if type_.tz else pa.timestamp("us")
    if isinstance(type_, _DECIMALS) and type_.precision <= 38 and 0 <= type_.scale <= type_.precision:
        return pa.decimal128(type_.precision, type_.scale)
    for is_kind, normal in _NORMAL_TYPES:
        if is_kind(type_):
            return normal
    hint = next((hint for is_kind, hint in _REFUSALS if is_kind(type_)), "declare one of the types that Spark has")
    raise DeclarationError(f"schema: Spark has no such type for column {path!r}; found {type_}", hint=hint)


def _evolve_fields(old: Iterable[Field], new: Iterable[Field], parent: str, reasons: list[str]) -> list[Field]:
    """Merge sibling fields. For each one that cannot be merged, a reason is appended to `reasons`."""
    declared = {field.name: field for field in new}
    fields = []
    for field in old:
        path = f"{parent}.{field.name}" if parent else field.name
        if field.name in declared:
            fields.append(_evolve_field(field, declared.pop(field.name), path, reasons))
        else:
            reasons.append(f"column {path!r} is gone")
    reasons.extend(
        f"new column {field.name!r} is not null, but the rows already stored have no value for it"
        for field in declared.values()
        if not field.nullable
    )
    return [*fields, *declared.values()]


def _evolve_field(old: Field, new: Field, path: str, reasons: list[str]) -> Field:
    if old.nullable and not new.nullable:
        reasons.append(f"column {path!r} becomes not null, but the rows already stored may have nulls")
    return new.with_type(_evolve_type(old.type, new.type, path, reasons))


def _evolve_type(old: pa.DataType, new: pa.DataType, path: str, reasons: list[str]) -> pa.DataType:
    if isinstance(old, pa.StructType) and isinstance(new, pa.StructType):
        return pa.struct(_evolve_fields(old, new, path, reasons))
    if isinstance(old, pa.ListType) and isinstance(new, pa.ListType):
        return pa.list_(_evolve_type(old.value_type, new.value_type, path, reasons))
    if isinstance(old, pa.MapType) and isinstance(new, pa.MapType) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _evolve_type(old.item_type, new.item_type, path, reasons))
    if old != new and not _widens(old, new):
        reasons.append(f"column {path!r} changes from {type_ddl(old)} to {type_ddl(new)}, which is not wider")
    return new


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    if isinstance(old, pa.Decimal128Type) and isinstance(new, pa.Decimal128Type):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return new in WIDER_TYPES.get(old, ())
