"""App: what the user declares. It starts nothing: an app is a name, a log, settings and a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import pyarrow as pa

from penstock.calls import answer_methods
from penstock.captures import Captures, check_request, find_columns, source_node
from penstock.errors import DeclarationError
from penstock.flow.event_time import check_clock_columns, timing_of
from penstock.flow.habits import SuggestsNames
from penstock.flow.load import load_declarations, read_program
from penstock.flow.location import Declaring, caller_location, located
from penstock.flow.messages import MESSAGE_SCHEMA, check_messages
from penstock.flow.names import EVENT_TIME, check_app_name, check_columns, check_output_name
from penstock.flow.plan import (
    Changelog,
    ExternalSink,
    MessageFormat,
    MessageTable,
    Output,
    Plan,
    Shape,
    Sink,
    Source,
    TimeUnit,
    Timing,
    Topic,
    View,
)
from penstock.flow.rows import check_rows
from penstock.flow.settings import AppSettings
from penstock.flow.sinks import SinkTopic, check_key, check_sink_topic, check_url_shape
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.log import TopicSettings, check_topic
from penstock.logs import apps_folder, named_log
from penstock.schema.arrow import parse_schema, to_ddl
from penstock.schema.declared import AnySchema
from penstock.targets import check_target

if TYPE_CHECKING:
    from threading import Event

    from penstock.capture.declaration import CaptureDeclaration
    from penstock.captures import Names
    from penstock.derive.views import ViewChange, ViewReader
    from penstock.engine.spark import SparkSession
    from penstock.schema.result import Result
    from penstock.summary import EpochSummary, RunSummary

DEFAULT_LOG = "./penstock-data"
_SETTINGS_HINT = (
    'create it beforehand, with "penstock topic create" or log.create_topic(..., settings=ps.TopicSettings(...))'
)

_KEY_HINT = 'a view has the key of its rows: that of .group_by(...), .latest("id") or app.table(..., key="id")'
_HINTS = {
    "__init__": {
        **dict.fromkeys(("path", "folder", "directory", "url"), 'log="./penstock-data"'),
        **dict.fromkeys(("spark", "master"), "the session is given to app.run(spark=...)"),
        **{field.name: f"settings=ps.AppSettings({field.name}=...)" for field in fields(AppSettings)},
    },
    "topic": {
        **{name: f'time=ps.event_time("...", {name}="...")' for name in ("idle", "max_ahead", "sent", "received")},
        **{field.name: _SETTINGS_HINT for field in fields(TopicSettings)},
        "columns": 'schema="order_id bigint not null, placed_at timestamp"',
    },
    "table": {"lateness": "rows of a table are never late: it goes to app.topic(...)", "primary_key": 'key="id"'},
    "capture": {
        **dict.fromkeys(("topic", "to"), 'the topic is called name="..."'),
        **dict.fromkeys(("slot", "publication"), 'they are named after the capture: capture="..."'),
        **dict.fromkeys(("tables",), "call app.capture once per table: tables of one URL share a connection"),
        **dict.fromkeys(("primary_key",), 'key="id"'),
    },
    "view": {
        **dict.fromkeys(("key", "keys", "primary_key", "index"), _KEY_HINT),
        **dict.fromkeys(("sql", "query", "select"), 'app.sql("CREATE VIEW name AS SELECT ...")'),
        **dict.fromkeys(
            ("to", "topic"), "a view is read with app.query(...); app.sink(...) writes an answer elsewhere"
        ),
    },
    "sink": dict.fromkeys(("topic", "partitions"), 'to=ps.topic("...", partitions=2)'),
    "run": {"log": 'the log belongs to the app: ps.App("shop", log=...)'},
    "query": dict.fromkeys(("params", "args", "values"), "the values of ? and $name are called parameters"),
}

AnyRows = TypeVar("AnyRows", Stream, Table)


@answer_methods(_HINTS, locate=located)
class App(SuggestsNames):
    """A program that keeps views in step with a log.

        app = App("shop")
        orders = app.topic("orders", schema="order_id long, country string, placed_at timestamp", time="placed_at")
        app.view("orders_by_country", orders.group_by("country").agg(orders="count(*)"))

    `App("shop", log="./penstock-data")` also says which log it uses.

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
        self._captures = Captures()
        self._reader: ViewReader | None = None

    def __repr__(self) -> str:
        return f"<App {self.name}: {', '.join(output.name for output in self._outputs.values()) or 'no views'}>"

    @property
    def plan(self) -> Plan:
        """What was declared so far, as plain data."""
        return Plan(self.name, tuple(self._outputs.values()))

    @property
    def captures(self) -> tuple[CaptureDeclaration, ...]:
        """What `capture` declared so far, as plain data: one capture for each database."""
        return tuple(self._captures)

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
        schema: AnySchema,
        key: str | Sequence[str] = (),
        time: str | Timing | None = None,
        lateness: str | None = None,
        partitions: int = 1,
    ) -> Stream:
        """A topic of the log as a stream of its events. It is created when the app first runs, if it does not exist.

        `app.topic("orders", schema="order_id bigint not null, placed_at timestamp", time="placed_at")`

        - `schema`: the columns as DDL text: `"order_id bigint not null, amount decimal(10,2), placed_at timestamp"`.
        - `key`: the column or columns that say which partition an event goes to; `partitions`: how many there are.
        - `time`: the column that says when an event happened, which windows need; or `ps.event_time(...)`, which says
          more about it: how long a producer may be silent, how far its clock may be ahead, how it is corrected.
        - `lateness`: short for `time=ps.event_time(..., lateness=...)`: how much later than a newer event of the same
          producer an event may come and still be in time.

        To declare a topic again in the same way gives the same stream.
        """
        with Declaring(f"topic '{name}'") as location:
            timing = timing_of(time, lateness)
            column = None if timing is None else timing.column
            parsed = _checked_schema(name, schema, key, column, partitions)
            if timing is not None:
                check_clock_columns(timing, parsed)
            corrected = timing is not None and timing.sent is not None
            columns = (*parsed.names, EVENT_TIME) if corrected else tuple(parsed.names)
            check_columns(columns)
            shape = Shape(columns, EVENT_TIME if corrected else column)
            node = Topic(name, to_ddl(parsed), _names(key), partitions, timing, shape, location)
            return self._naming(name, Stream(self._source(node)))

    def table(
        self,
        name: str,
        *,
        schema: AnySchema,
        key: str | Sequence[str],
        time: str | None = None,
        partitions: int = 1,
        format: MessageFormat | None = None,  # noqa: A002
        topic: str | None = None,
        source_table: str | None = None,
        time_unit: TimeUnit | None = None,
    ) -> Table:
        """A keyed topic of the log as a table: the last row of each key counts, and a delete takes it away.

        `app.table("customers", schema="id bigint not null, name string", key="id")`

        The parameters are those of `topic`. `time` names the column that says since when a row holds, if there is one.

        With `format="debezium"` or `"maxwell"`, the topic has messages of that tool, in the columns `key string, value
        string`, and the schema and the key are those of the table that they are about. `topic` is the name of the topic
        if it is another one; `source_table` the table, such as `"shop.customers"`, if a topic of Maxwell has several.
        Numbers in timestamps count `time_unit` since 1970 where a message does not say what they count.
        """
        with Declaring(f"table '{name}'") as location:
            if time is not None and not isinstance(time, str):
                raise DeclarationError(
                    f"the time of a table is the name of a column; found {time!r}",
                    hint='time="since"; ps.event_time(...) is for topics, whose events can be late',
                )
            parsed = _checked_schema(name, schema, key, time, partitions)
            check_columns(parsed.names)
            columns = _names(key)
            if not columns:
                raise DeclarationError("a table needs a key; found none")
            shape = Shape(tuple(parsed.names), time, columns, retracts=True)
            messages = check_messages(name, format, topic, source_table, time_unit)
            if messages is None:
                node = Changelog(name, to_ddl(parsed), columns, partitions, time, shape, location)
            else:
                read = topic or name
                check_topic(read, MESSAGE_SCHEMA, TopicSettings(partitions=partitions))
                node = MessageTable(read, to_ddl(parsed), columns, partitions, time, shape, location, messages=messages)
            return self._naming(name, Table(self._source(node)))

    @overload
    def capture(
        self,
        url: str,
        *,
        table: str,
        name: str | None = None,
        schema: AnySchema | None = None,
        key: Names = (),
        columns: Names | None = None,
        as_text: Names = (),
        partitions: int = 1,
        capture: str | None = None,
    ) -> Table: ...

    @overload
    def capture(
        self,
        url: str,
        *,
        outbox: str,
        name: str | None = None,
        schema: AnySchema | None = None,
        columns: Names | None = None,
        as_text: Names = (),
        time: str | Timing | None = None,
        lateness: str | None = None,
        partitions: int = 1,
        capture: str | None = None,
    ) -> Stream: ...

    def capture(
        self,
        url: str,
        *,
        table: str | None = None,
        outbox: str | None = None,
        name: str | None = None,
        schema: AnySchema | None = None,
        key: Names = (),
        columns: Names | None = None,
        as_text: Names = (),
        time: str | Timing | None = None,
        lateness: str | None = None,
        partitions: int = 1,
        capture: str | None = None,
    ) -> Table | Stream:
        """A table of a database as a table: first a copy of its rows, then each change, in the order of commits.

        `app.capture("postgresql://localhost/shop", table="customers")`

        - `table`: what to capture. Or `outbox`: a table of events, of which only inserts count; it gives a stream.
        - `name`: the topic of the log that its rows go to; without it, the name of the table.
        - `schema`: the columns, as for `topic`; those that cannot be null are the key, unless `key` names it. Without
          it they are those of the topic, if there is one, or the database is asked now.
        - `columns`: capture only these. `as_text`: capture these as the text that the database shows.
        - `partitions`: of the topic, when it is created.
        - `time`, `lateness`: of the events of an outbox, as for `topic`; without it, when they were committed.
        - `capture`: the name of the capture; without it, that of the database. Tables of one URL share it.

        Rows also have `committed_at`, the time of a table for `as_of`. It is 1970 where the capture found a row.
        `${NAME}` in the URL stands for a variable of the environment. The capture runs with the app.
        """
        with Declaring(f"capture '{table or outbox}'") as location:
            timing = timing_of(time, lateness)
            if timing is not None and outbox is None:
                raise DeclarationError("the time of a table is when its rows were committed; found time or lateness")
            request = check_request(
                url, table, outbox, name,
                schema=schema, key=key, columns=columns, as_text=as_text, partitions=partitions, capture=capture,
            )  # fmt: skip
            capture = self._captures.name_for(request)
            found = find_columns(request, self.log)
            _checked_schema(
                request.topic, found.schema, found.key, None if timing is None else timing.column, partitions
            )
            check_columns(found.schema.names)
            node = self._source(source_node(request, found, capture, timing, location))
            self._captures.add(capture, request.url, request.captured_table())
            if request.is_outbox:
                return self._naming(request.topic, Stream(node))
            return self._naming(request.topic, Table(node))

    def view(self, name: str, rows: Stream | Table) -> None:
        """Keep an answer under a name, to be queried while the app runs: `app.view("revenue", revenue)`.

        The name is a table in SQL.
        """
        with Declaring(f"view '{name}'") as location:
            check_output_name(name, "view")
            self._output(View(name, check_rows(rows).node, location))
            self._named.setdefault(name, rows)

    def sink(self, name: str, rows: Stream | Table, *, to: str | SinkTopic | None = None) -> None:
        """Write an answer outside of the app as it changes, exactly once: `app.sink("alerts", alerts)`.

        - `to=ps.topic("alerts", partitions=2)`: a topic of the log, which is created when the app first runs. Without
          `to`, it has the name of the sink. A sink begins with an empty topic, so that the topic is the answer and
          nothing else.
        - `to="sqlite:///reports.db"`: the URL of a target outside of the log. This one keeps the answer as a table of a
          SQLite file, under the name of the sink.

        The rows of a stream are appended. Of an answer with a key, such as that of `group_by`, the topic has that key:
        it gets the new row of each key that has changed, and a delete where a row is gone, so that it can be read as a
        table. Rows that can be retracted need a key; `.changes()` makes a stream of any table.
        """
        with Declaring(f"sink '{name}'") as location:
            check_output_name(name, "sink")
            node = check_rows(rows).node
            if isinstance(to, str):
                check_url_shape(to)
                check_target(to)
                self._output(ExternalSink(name, node, to, location))
                return
            if not isinstance(to, SinkTopic | None):
                raise DeclarationError(
                    f"to is a topic or the URL of a target; found {to!r}",
                    hint='to=ps.topic("alerts", partitions=2), or to="sqlite:///reports.db"',
                )
            destination = to or SinkTopic(name)
            check_key(node.shape)
            check_sink_topic(destination)
            self._refuse_used_topic(destination.name)
            self._output(Sink(name, node, destination.name, destination.partitions, location))

    def sql(self, text: str) -> Stream | Table:
        """Declare or select with one statement of SQL: `app.sql("CREATE VIEW paid AS SELECT * FROM orders WHERE ...")`.

        CREATE TOPIC, TABLE, VIEW and SINK give the stream or table that they declare, a SELECT its rows. It becomes the
        same plan as the Python verbs, and knows what was declared with them:
        `app.view("large", app.sql("SELECT id, amount FROM orders").where("amount > 100"))`.
        """
        from penstock.sql import run_statement

        return run_statement(self, text, caller_location())

    def explain(self, what: str | None = None) -> str:
        """What `penstock explain` prints: each step, what it remembers and for how long. Nothing runs.

        Without `what` it explains the whole app; else the view, sink, topic or table of this name, or a query that is
        declared nowhere: `app.explain("SELECT country, count(*) AS n FROM orders GROUP BY country")`.
        """
        from penstock.flow.explain import explain
        from penstock.sql import explain_statement

        return explain(self.plan) if what is None else explain_statement(self, what, caller_location())

    def run(
        self,
        once: bool = False,
        spark: SparkSession | None = None,
        stop: Event | None = None,
        on_epoch: Callable[[EpochSummary], object] | None = None,
        *,
        finish: bool = False,
        from_oldest: bool = False,
        capture: bool = True,
    ) -> RunSummary:
        """Run the app, as `penstock run` does: keep its views and sinks in step with the log, until it is stopped.

        - `once`: process everything that is in the log, and return.
        - `spark`: the session to run in, which is neither stopped nor changed. Without it, Spark is started on this
          machine, or the one that this process has started before is used.
        - `stop`: ends the run when it is set, after the running epoch. Ctrl-C does the same in the main thread.
        - `on_epoch`: called after the commit of each epoch; an error that it raises ends the run.
        - `finish`, with `once`: the input has ended, so close the windows that are still open.
        - `from_oldest`: do without rows that retention has removed before they were read, and record the gap.
        - `capture`: run the captures that the app declares, each in a process of its own; False: they run elsewhere.
          If one ends with an error, the app continues with what the log has, and the error is raised at the end.

        In a script it belongs under `if __name__ == "__main__":`, so that `python shop.py` and `penstock run shop.py`
        run the same program: either continues where the other one stopped. Progress is logged to the logger `penstock`.
        """
        from penstock.engine.run_options import RunOptions
        from penstock.script import run_app

        options = RunOptions(once=once, finish=finish, from_oldest=from_oldest, spark=spark)
        return run_app(self, options, stop=stop, on_epoch=on_epoch, capture=capture)

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

        `app.changes("revenue", timeout=10)` ends when nothing has changed for ten seconds.

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

    def _refuse_used_topic(self, name: str) -> None:
        """A sink writes a topic that the app does not read and no other sink writes."""
        if name in self._sources:
            raise DeclarationError(
                f"the app reads topic '{name}' itself; it was declared at {self._sources[name].location}"
            )
        for sink in self.plan.sinks:
            if sink.topic == name:
                raise DeclarationError(f"sink '{sink.name}' writes topic '{name}' already, see {sink.location}")

    def _source(self, node: Source) -> Source:
        """The node of a topic: the one that was declared before, if it was declared in the same way."""
        for sink in self.plan.sinks:
            if sink.topic == node.name:
                raise DeclarationError(
                    f"sink '{sink.name}' writes it, see {sink.location}, and an app does not read what it writes",
                    hint="use the stream or table that the sink writes, or read the topic in another app",
                )
        known = self._sources.setdefault(node.name, node)
        if known != node or known.captured != node.captured:
            hint = "declare it once and use the result twice"
            if isinstance(node, MessageTable):
                hint = "an app can read one table of each topic; read the others in apps of their own"
            raise DeclarationError(f"it was declared differently at {known.location}", hint=hint)
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


def _list_apps(apps: dict[str, App]) -> str:
    return f"found {', '.join(app.name for app in apps.values()) or 'none'}"


def _names(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _checked_schema(
    name: str, schema: AnySchema, key: str | Sequence[str], time: str | None, partitions: int
) -> pa.Schema:
    """The schema, after everything the log would refuse when the topic is created."""
    parsed = parse_schema(schema)
    try:
        check_topic(name, parsed, TopicSettings(partitions=partitions, key=_names(key), time=time))
    except DeclarationError as error:
        raise DeclarationError(error.message.removeprefix(f"topic '{name}': "), hint=error.hint) from None
    return parsed
