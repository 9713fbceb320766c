"""App: what the user declares. It starts nothing: an app is a name, a log, settings and a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from penstock.errors import DeclarationError
from penstock.flow.load import load_declarations, read_program
from penstock.flow.location import Declaring, caller_location
from penstock.flow.names import EVENT_TIME, check_app_name, check_columns, check_output_name
from penstock.flow.plan import Changelog, ExternalSink, Node, Output, Plan, Shape, Sink, Source, Timing, Topic, View
from penstock.flow.settings import AppSettings
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.flow.windows import microseconds
from penstock.log import TopicSettings, check_topic
from penstock.logs import apps_folder, named_log
from penstock.schema.arrow import parse_schema, to_ddl
from penstock.schema.ddl import type_ddl
from penstock.suggest import closest
from penstock.targets import check_target

if TYPE_CHECKING:
    from threading import Event

    from penstock.derive.views import ViewChange, ViewReader
    from penstock.schema.result import Result

DEFAULT_LOG = "./penstock-data"
_LATENESS, _IDLE, _MAX_AHEAD = "0 seconds", "30 seconds", "10 minutes"

AnyRows = TypeVar("AnyRows", Stream, Table)


class App:
    """A program that keeps views in step with a log.

        app = App("shop")
        orders = app.topic("orders", schema="order_id long, country string, placed_at timestamp", time="placed_at")
        app.view("orders_by_country", orders.group_by("country").agg(orders="count(*)"))

    The name tells apps apart that use the same log: state, views and positions are kept under it. The log is a folder;
    without one it is what the variable PENSTOCK_LOG says, or else `./penstock-data`.
    """

    def __init__(self, name: str, *, log: str | Path | None = None, settings: AppSettings | None = None) -> None:
        with Declaring("app"):
            check_app_name(name)
            if settings is not None and not isinstance(settings, AppSettings):
                raise DeclarationError(f"settings are AppSettings(...); found {settings!r}")
        self.name = name
        self.log: str | Path = named_log(log if log is not None else os.environ.get("PENSTOCK_LOG") or DEFAULT_LOG)
        self.settings = settings or AppSettings()
        self._sources: dict[str, Source] = {}
        self._outputs: dict[str, Output] = {}
        self._named: dict[str, Stream | Table] = {}
        self._reader: ViewReader | None = None

    def __repr__(self) -> str:
        return f"<App {self.name}: {', '.join(output.name for output in self._outputs.values()) or 'no views'}>"

    @property
    def plan(self) -> Plan:
        """What was declared so far, as plain data."""
        return Plan(self.name, tuple(self._outputs.values()))

    @property
    def named(self) -> Mapping[str, Stream | Table]:
        """Every topic, table and view by its name: what SQL finds behind FROM, whichever way it was declared.

        Where a view has the name of a topic or a table, the name means the latter.
        """
        return dict(self._named)

    def topic(
        self,
        name: str,
        *,
        schema: str | pa.Schema,
        key: str | Sequence[str] = (),
        time: str | None = None,
        lateness: str = _LATENESS,
        idle: str = _IDLE,
        max_ahead: str = _MAX_AHEAD,
        sent: str | None = None,
        received: str | None = None,
        partitions: int = 1,
    ) -> Stream:
        """A topic of the log as a stream of its events. It is created when the app first runs, if it is not there.

        - `schema`: the columns as DDL text: `"order_id bigint not null, amount decimal(10,2), placed_at timestamp"`.
        - `key`: the column or columns that say which partition an event goes to; `partitions`: how many there are.
        - `time`: the column that says when an event happened. Windows need it.
        - `lateness`: how much later than a newer event of the same producer an event may come and still be in time.
        - `idle`: a producer that is silent for this long holds up nobody's windows.
        - `max_ahead`: an event that is further in the future than this is set aside: its clock is wrong.
        - `sent`: the column that says when the device sent the event, by the same clock as `time`, and `received`: when
          it was received, by ours (without it: when the log stored it). Then the event time is corrected by the
          difference, and stands in the additional column `event_time`.

        To declare a topic again in the same way gives the same stream.
        """
        with Declaring(f"topic '{name}'") as location:
            parsed = _checked_schema(name, schema, key, time, partitions)
            given = {"lateness": lateness, "idle": idle, "max_ahead": max_ahead}
            timing = _timing(parsed, time, given, sent=sent, received=received)
            corrected = timing is not None and timing.sent is not None
            columns = (*parsed.names, EVENT_TIME) if corrected else tuple(parsed.names)
            check_columns(columns)
            shape = Shape(columns, EVENT_TIME if corrected else time)
            node = Topic(name, to_ddl(parsed), _names(key), partitions, timing, shape, location)
            return self._naming(name, Stream(self._source(node)))

    def table(
        self,
        name: str,
        *,
        schema: str | pa.Schema,
        key: str | Sequence[str],
        time: str | None = None,
        partitions: int = 1,
    ) -> Table:
        """A keyed topic of the log as a table: the last row of each key counts, and a delete takes it away.

        The parameters are those of `topic`. `time` names the column that says since when a row holds, if there is one.
        """
        with Declaring(f"table '{name}'") as location:
            parsed = _checked_schema(name, schema, key, time, partitions)
            check_columns(parsed.names)
            columns = _names(key)
            if not columns:
                raise DeclarationError("a table needs a key; found none")
            shape = Shape(tuple(parsed.names), time, columns, retracts=True)
            node = Changelog(name, to_ddl(parsed), columns, partitions, time, shape, location)
            return self._naming(name, Table(self._source(node)))

    def view(self, name: str, rows: Stream | Table) -> None:
        """Keep an answer under a name, to be queried while the app runs: `app.view("revenue", revenue)`.

        The name is a table in SQL.
        """
        with Declaring(f"view '{name}'") as location:
            check_output_name(name, "view")
            self._output(View(name, _node_of(rows), location))
            self._named.setdefault(name, rows)

    def sink(
        self,
        name: str,
        rows: Stream | Table,
        *,
        topic: str | None = None,
        partitions: int = 1,
        to: str | None = None,
    ) -> None:
        """Write an answer to a topic of the log as it changes, exactly once: `app.sink("alerts", alerts)`.

        - `topic`: its name; without it, that of the sink. It is made when the app first runs. A sink begins with an
          empty topic, so that the topic is the answer and nothing else.
        - `partitions`: in how many the topic is made.
        - `to`: instead of a topic, the URL of a target outside of the log: `to="sqlite:///reports.db"` keeps the answer
          as a table of that SQLite file, under the name of the sink.

        The rows of a stream are appended. Of an answer with a key, such as that of `group_by`, the topic has that key:
        it gets the new row of each key that has changed, and a delete where a row is gone, so that it can be read as a
        table. Rows that may be taken back need a key; `.changes()` makes a stream of any table.
        """
        with Declaring(f"sink '{name}'") as location:
            check_output_name(name, "sink")
            if to is not None:
                if topic is not None or partitions != 1:
                    raise DeclarationError("it is written to a topic or to a target; found both")
                check_target(to)
                self._output(ExternalSink(name, _node_of(rows), to, location))
                return
            shape, written = _node_of(rows).shape, topic or name
            if not shape.key and (shape.retracts or shape.key is not None):
                raise DeclarationError(
                    "its rows may be taken back, and have no key by which a topic could tell them",
                    hint='write its changes: .changes(); or keep one row of each key: .latest("id")',
                )
            check_topic(written, pa.schema([]), TopicSettings(partitions=partitions))
            if written.endswith((".late", ".dead")):
                raise DeclarationError(f"topics like '{written}' are for rows that are set aside", hint="name another")
            if written in self._sources:
                raise DeclarationError(
                    f"the app reads topic '{written}' itself; it was declared at {self._sources[written].location}"
                )
            for sink in self.plan.sinks:
                if sink.topic == written:
                    raise DeclarationError(f"sink '{sink.name}' writes topic '{written}' already, see {sink.location}")
            self._output(Sink(name, rows.node, written, partitions, location))

    def sql(self, text: str) -> Stream | Table | str:
        """Declare or select with one statement of SQL: `app.sql("CREATE VIEW paid AS SELECT * FROM orders WHERE ...")`.

        CREATE TOPIC, TABLE, VIEW and SINK give the stream or table that they declare, a SELECT its rows, and EXPLAIN
        the text that `penstock explain` prints. It becomes the same plan as the Python verbs, and knows what was
        declared with them: `app.view("large", app.sql("SELECT id, amount FROM orders").where("amount > 100"))`.
        """
        from penstock.sql import run_statement

        return run_statement(self, text, caller_location())

    def read(self, view: str, *, columns: Sequence[str] | None = None) -> Result:
        """All rows of a view, in no order: `app.read("revenue").to_pandas()`. `columns` narrows them."""
        return self._views().read(view, columns=columns)

    def query(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Result:
        """Ask the views with SQL, also while the app runs: `app.query("select * from revenue where n > ?", [3])`.

        All views in a query are of the same epoch. The result is a sequence of dicts, and has `to_arrow()`,
        `to_pandas()` and `to_polars()`.
        """
        with self._views().query(sql, parameters) as answer:
            return answer.rows()

    def get(self, view: str, key: object) -> dict[str, object] | None:
        """Look up one row of a view by its key, in microseconds: `app.get("revenue", ("DE", day))`.

        The key is a value, a tuple in the order of the key's columns, or a mapping from their names. None: no row has
        it.
        """
        return self._views().get(view, key)

    def changes(
        self, view: str, *, after: int | None = None, timeout: float | None = None, stop: Event | None = None
    ) -> Iterator[ViewChange]:
        """What each epoch adds to a view and removes from it, as epochs are committed, each once and in order:

            rows = app.read("revenue")
            for change in app.changes("revenue", after=rows.epoch):
                print(change.added, change.deleted)

        - `after`: the last epoch that is known; without it, the newest. Resume after `change.epoch`.
        - `timeout`: how many seconds to wait for the next epoch before ending; without it, forever. `stop`: ends it
          when set.

        ChangesLostError says that changes in between are no longer kept: read all rows again, and start over.
        """
        return self._views().changes(view, after=after, timeout=timeout, stop=stop)

    def _views(self) -> ViewReader:
        """Stays open, so that the next question finds what this one opened."""
        if self._reader is None:
            from penstock.derive.views import ViewReader

            self._reader = ViewReader(apps_folder(self.log) / self.name)
        return self._reader

    def _output(self, output: Output) -> None:
        if earlier := self._outputs.get(output.name.lower()):
            raise DeclarationError(
                f"there is a {'view' if isinstance(earlier, View) else 'sink'} of this name already; "
                f"it was declared at {earlier.location}"
            )
        self._outputs[output.name.lower()] = output

    def _source(self, node: Source) -> Source:
        """The node of a topic: the one that was declared before, if it was declared in the same way."""
        for sink in self.plan.sinks:
            if sink.topic == node.name:
                raise DeclarationError(
                    f"sink '{sink.name}' writes it, see {sink.location}, and an app does not read what it writes",
                    hint="use the stream or table that the sink writes, or read the topic in another app",
                )
        known = self._sources.setdefault(node.name, node)
        if known != node:
            raise DeclarationError(
                f"it was declared in another way at {known.location}", hint="declare it once and use the result twice"
            )
        return known

    def _naming(self, name: str, rows: AnyRows) -> AnyRows:
        self._named[name] = rows
        return rows


def load_app(path: Path, *, name: str | None = None) -> App:
    """Run the user's file, in Python or SQL, and return its app: the one called `name`, if it declares several."""
    apps = {path.stem: _app_in_sql(path)} if path.suffix.lower() == ".sql" else load_declarations(path, App)
    if name is not None:
        chosen = [app for variable, app in apps.items() if name in (variable, app.name)]
        if len(chosen) != 1:
            raise DeclarationError(f"{path}: there is no app '{name}'; {_list_apps(apps)}")
        return chosen[0]
    if not apps:
        raise DeclarationError(
            f"{path}: it declares no app", hint='put it into a variable of the module: app = App("shop")'
        )
    if len(apps) > 1:
        raise DeclarationError(
            f"{path}: it declares several apps; {_list_apps(apps)}", hint="choose one with --app NAME"
        )
    return next(iter(apps.values()))


def _app_in_sql(path: Path) -> App:
    from penstock.sql import app_name, declare_app

    try:
        text = read_program(path).decode()
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: it is not text in UTF-8") from None
    name = app_name(str(path), path.stem)
    return declare_app(text, str(path), lambda settings: App(name, settings=settings))


def _node_of(rows: object) -> Node:
    if not isinstance(rows, Stream | Table):
        raise DeclarationError(
            f"a stream or a table is needed; found {rows!r}", hint="end group_by(...) with .agg(...)"
        )
    return rows.node


def _list_apps(apps: dict[str, App]) -> str:
    return f"found {', '.join(app.name for app in apps.values()) or 'none'}"


def _names(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _checked_schema(
    name: str, schema: str | pa.Schema, key: str | Sequence[str], time: str | None, partitions: int
) -> pa.Schema:
    """The schema, after everything the log would refuse when the topic is created."""
    parsed = parse_schema(schema)
    try:
        check_topic(name, parsed, TopicSettings(partitions=partitions, key=_names(key), time=time))
    except DeclarationError as error:
        raise DeclarationError(error.message.removeprefix(f"topic '{name}': "), hint=error.hint) from None
    return parsed


def _timing(
    schema: pa.Schema, time: str | None, given: dict[str, str], *, sent: str | None, received: str | None
) -> Timing | None:
    defaults = {"lateness": _LATENESS, "idle": _IDLE, "max_ahead": _MAX_AHEAD}
    if time is None:
        useless = [what for what, value in given.items() if value != defaults[what]]
        useless += [what for what, value in (("sent", sent), ("received", received)) if value is not None]
        if useless:
            raise DeclarationError(f"{useless[0]} needs events with a time", hint="name the column: time=...")
        return None
    if received is not None and sent is None:
        raise DeclarationError("received corrects the time together with sent, which is missing")
    for what, column in (("sent", sent), ("received", received)):
        if column is not None:
            _check_timestamp(schema, what, column)
    durations = {what: microseconds(value, what) for what, value in given.items()}
    return Timing(time, **durations, sent=sent, received=received)


def _check_timestamp(schema: pa.Schema, what: str, column: str) -> None:
    if column not in schema.names:
        raise DeclarationError(
            f"{what}: there is no column '{column}'; there are {', '.join(schema.names)}",
            hint=closest(column, schema.names),
        )
    if not pa.types.is_timestamp(schema.field(column).type):
        raise DeclarationError(f"{what}: '{column}' must be a timestamp; found {type_ddl(schema.field(column).type)}")
