"""The rig: an app that runs only when a test says so, on a clock that only the test moves.

    with Rig(app) as rig:
        rig.append("orders", [{"order_id": 1, "amount": 5, "placed_at": "2024-05-01 10:00:00"}])
        rig.advance("1 minute")
        rig.run()
        assert rig.view("revenue") == [...]

The rig is a real log and a real engine in a folder of their own. Starting Spark takes a few seconds;
a test run starts it once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from penstock.calls import answer_methods
from penstock.contracts import COMMIT_TIME, Rows
from penstock.derive.views import query
from penstock.errors import DeclarationError
from penstock.flow.habits import SuggestsNames
from penstock.flow.plan import Source, nodes
from penstock.log import Log, Topic
from penstock.suggest import closest
from penstock.units import NO_TIME, parse_duration, utc_datetime

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.engine.epoch import Instance
    from penstock.engine.ledger.records import Account
    from penstock.engine.plan.cut import SourceCut
    from penstock.engine.progress import Progress
    from penstock.engine.run.compiled import CompiledPlan
    from penstock.engine.spark import SparkSession
    from penstock.flow.plan import Plan
    from penstock.log import Producer, Rows
    from penstock.schema.result import Result

Step = Literal["plan", "run", "publish", "commit"]
DEFAULT_START = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
# A run that still has work after this many epochs will never finish.
MOST_EPOCHS = 10_000


class Crash(Exception):  # noqa: N818 - it is not an error: the test asked for it
    """The instance died where the test asked for it. `rig.restart()` starts the next one."""


@answer_methods()
class Rig(SuggestsNames):
    """An app under test. Methods that change something may be called at any time, in any order.

    `start` is the initial time of the clock; event times may be anything. `spark` is the session to use. Without it,
    the running session is used, or a small one is started. The log lies in `folder`, or else in
    a temporary folder, which is removed with the rig.
    """

    def __init__(
        self,
        app: App,
        *,
        start: datetime = DEFAULT_START,
        spark: SparkSession | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.app = app
        self.now = start
        self._own_folder = folder is None
        self._folder = Path(folder or tempfile.mkdtemp(prefix="penstock-rig-"))
        self._crash_at: Step | None = None
        self._producers: dict[str, Producer] = {}
        self.log = self._open_log(lambda: self.now.timestamp())
        self._spark = spark or self._start_spark()
        self._instance: Instance | None = None
        self._compiled: tuple[Plan, CompiledPlan] | None = None
        self.restart()

    def _open_log(self, clock: Callable[[], float]) -> Log:
        return Log(self._folder, clock=clock)

    def _start_spark(self) -> SparkSession:
        """A small Spark that prints nothing: what it says goes to the file that `penstock run` writes too."""
        from penstock.engine.loop import SPARK_OUTPUT
        from penstock.engine.spark import start_spark

        return start_spark(self.app.name, "local[2]", output=self.directory / SPARK_OUTPUT)

    # -- what happens -------------------------------------------------------------------------------------------------

    def append(self, topic: str, rows: Rows, *, producer: str | None = None, deleted: bool = False) -> None:
        """Append events now, under a producer's name or without one: whatever `Topic.append` takes.

        With `deleted`, the rows delete their keys. Rows of a captured table that do not say when they were committed
        were committed now, by the clock of the rig; those that were there before have `committed_at="1970-01-01"`.
        """
        log_topic = self.log.topic(topic)
        if not isinstance(rows, pa.RecordBatch) and topic in self._captured_topics():
            rows = [{COMMIT_TIME: self.now, **row} for row in rows]
        if producer is None:
            log_topic.append(rows, deleted=deleted)
        else:
            self.producer(producer).append(log_topic, rows, deleted=deleted)

    def producer(self, name: str) -> Producer:
        """A named producer, for appends and promises."""
        if name not in self._producers:
            self._producers[name] = self.log.producer(name)
        return self._producers[name]

    def topic(self, name: str) -> Topic:
        """A topic of the log, to read it or to append to it directly."""
        return self.log.topic(name)

    def advance(self, duration: str | timedelta) -> None:
        """Move the clock, by text such as '5 minutes' or by a timedelta."""
        if isinstance(duration, timedelta):
            self.now += duration
        elif isinstance(duration, str):
            self.now += timedelta(seconds=parse_duration(duration))
        else:
            raise DeclarationError(
                f"advance: a duration has a unit; found {duration!r}", hint=f"did you mean '{duration} seconds'?"
            )

    def step(self) -> Progress | None:
        """Run one epoch. None if there was nothing to do."""
        return self._run_instance(lambda instance: instance.step())

    def _run_instance(self, run: Callable[[Instance], Progress | None]) -> Progress | None:
        try:
            return run(self._running_instance())
        except Crash:
            self._stop()
            raise

    def run(self) -> int:
        """Run epochs until nothing is left to do. Returns how many there were."""
        for epochs in range(MOST_EPOCHS):
            if self.step() is None:
                return epochs
        raise AssertionError(f"the app has not come to rest after {MOST_EPOCHS} epochs")

    def finish(self) -> int:
        """Run until nothing is left to do, then end all windows, like `penstock run --once --finish`.

        Returns how many epochs there were.
        """
        epochs = self.run()
        return epochs + (self._run_instance(lambda instance: instance.finish()) is not None)

    def crash_at(self, step: Step) -> AbstractContextManager[None]:
        """Make the next epoch die right after this step: it raises `Crash`.

        In a `with` block the crash is expected, and the app is restarted at the end of the block.
        """
        if step not in get_args(Step):
            steps = list(get_args(Step))
            raise DeclarationError(
                f"crash_at: an epoch has no step {step!r}; it has {', '.join(steps)}", hint=closest(str(step), steps)
            )
        self._crash_at = step
        return self._restart_after_crash(step)

    @contextmanager
    def _restart_after_crash(self, step: Step) -> Iterator[None]:
        try:
            yield
        except Crash:
            self.restart()
        else:
            raise AssertionError(f"no epoch has come to the end of step '{step}', so nothing has crashed")
        finally:
            self._crash_at = None

    def restart(self, app: App | None = None, *, from_oldest: bool = False) -> None:
        """Start a new instance of the same program or of a changed one. A running instance is closed first.

        `from_oldest` is the option of `penstock run`: do without rows that retention has removed.
        """
        from penstock.engine.epoch import Instance

        if app is not None:
            self.app = app
        self._stop()
        self._crash_at = None
        plan = self.app.plan
        # Compiling a plan takes longer than most epochs of a test, so the same program is compiled once.
        compiled = self._compiled[1] if self._compiled is not None and self._compiled[0] == plan else None
        self._instance = Instance(
            plan,
            self.log,
            self.app.settings,
            self._spark,
            clock=self._clock,
            from_oldest=from_oldest,
            reached=self._crash_if_due,
            compiled=compiled,
        )
        self._compiled = plan, self._instance.compiled

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Result:
        """Ask the views with SQL, as `App.query` does: a sequence of dicts that also becomes Arrow, pandas, Polars."""
        with query(self.directory, sql, parameters) as answer:
            return answer.rows()

    def view(self, name: str) -> list[dict[str, Any]]:
        """All rows of a view, sorted. Empty before the first epoch."""
        self._check_view(name)
        if not self._has_committed():
            return []
        return sorted(self.query(f"SELECT * FROM {name}"), key=lambda row: [_sortable(value) for value in row.values()])

    def account(self, view: str) -> Account:
        """What has become of the events read for a view or a sink so far."""
        self._check_view(view, *(sink.name for sink in self.app.plan.all_sinks))
        return self._running_instance().accounts()[view]

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """All rows of a topic, such as `<app>.dead`. Empty if the app has not written it yet."""
        if topic not in self.log.topics() and topic in self._topics_to_write():
            return []
        return [row for batch in self.log.topic(topic).batches() for row in batch.rows_kept.to_pylist()]

    def positions(self, topic: str) -> dict[int, int]:
        """The offset up to which the app has read each partition of a topic, as of the last epoch. Empty at first."""
        cut = self._cut_of(topic)
        return {} if cut is None else dict(cut.ends)

    def watermark(self, topic: str) -> datetime | None:
        """The watermark of a topic as of the last epoch. None if no event with a time has arrived."""
        cut = self._cut_of(topic)
        if cut is None or cut.time is None or cut.time.watermark == NO_TIME:
            return None
        return utc_datetime(cut.time.watermark)

    def _running_instance(self) -> Instance:
        assert self._instance is not None, "the app has crashed: call restart() first"
        return self._instance

    def _check_view(self, name: str, *more: str) -> None:
        known = [*(view.name for view in self.app.plan.views), *more]
        if name not in known:
            raise DeclarationError(
                f"app '{self.app.name}' has no view '{name}'; it has {', '.join(known) or 'none'}",
                hint=closest(name, known),
            )

    def _captured_topics(self) -> set[str]:
        return {table.topic for declared in self.app.captures for table in declared.tables}

    def _topics_read(self) -> set[str]:
        return {node.name for node in nodes(self.app.plan) if isinstance(node, Source)}

    def _topics_to_write(self) -> set[str]:
        """The topics that exist once the app has something to write there."""
        side_topics = {f"{name}.late" for name in self._topics_read()} | {f"{self.app.name}.dead"}
        return side_topics | {sink.topic for sink in self.app.plan.sinks}

    def _has_committed(self) -> bool:
        from penstock.engine.ledger.ledger import Ledger

        return Ledger(self.directory).last_epoch() > 0

    def _cut_of(self, topic: str) -> SourceCut | None:
        from penstock.engine.ledger.ledger import Ledger

        if topic not in self._topics_read():
            known = sorted(self._topics_read())
            raise DeclarationError(
                f"app '{self.app.name}' does not read topic '{topic}'; it reads {', '.join(known) or 'none'}",
                hint=closest(topic, known),
            )
        last = Ledger(self.directory).last_commit()
        return None if last is None else last.live.cut.sources.get(topic)

    @property
    def directory(self) -> Path:
        """The folder of the app: its epochs, its states, its views."""
        return self.log.apps_folder / self.app.name

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the app and close its log; a temporary folder is removed."""
        self._stop()
        self.log.close()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        if self._instance is not None:
            self._instance.close()
            self._instance = None

    def _clock(self) -> int:
        return int(self.now.timestamp() * 1_000_000)

    def _crash_if_due(self, step: str) -> None:
        if step == self._crash_at:
            self._crash_at = None
            raise Crash(f"after step '{step}'")


def _sortable(value: object) -> tuple[str, Any]:
    return (type(value).__name__, value if not isinstance(value, dict | list) else str(value))
