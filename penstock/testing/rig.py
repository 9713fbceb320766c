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
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstock.derive.views import query
from penstock.errors import DeclarationError
from penstock.log import Log, Topic
from penstock.suggest import closest
from penstock.units import NO_TIME, parse_duration, utc_datetime

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.engine.epoch import Instance, Progress
    from penstock.engine.ledger.records import Account
    from penstock.engine.plan.cut import SourceCut
    from penstock.engine.run.compiled import CompiledPlan
    from penstock.engine.spark import SparkSession
    from penstock.flow.plan import Plan
    from penstock.log import Producer

Step = Literal["plan", "run", "publish", "commit"]
DEFAULT_START = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
# A run that still has work after this many epochs will never finish.
MOST_EPOCHS = 10_000


class Crash(Exception):  # noqa: N818 - it is not an error: the test asked for it
    """The instance died where the test asked for it. `rig.restart()` starts the next one."""


class Rig:
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
        from penstock.engine.spark import start_spark

        self.app = app
        self.now = start
        self._own_folder = folder is None
        self._folder = Path(folder or tempfile.mkdtemp(prefix="penstock-rig-"))
        self._spark = spark or start_spark(app.name, "local[2]")
        self._crash_at: Step | None = None
        self._producers: dict[str, Producer] = {}
        self.log = self._open_log(lambda: self.now.timestamp())
        self._instance: Instance | None = None
        self._compiled: tuple[Plan, CompiledPlan] | None = None
        self.restart()

    def _open_log(self, clock: Callable[[], float]) -> Log:
        return Log(self._folder, clock=clock)

    # -- what happens -------------------------------------------------------------------------------------------------

    def append(
        self, topic: str, rows: Sequence[Mapping[str, Any]], *, producer: str | None = None, deleted: bool = False
    ) -> None:
        """Append events now, under a producer's name or without one. With `deleted`, the rows delete their keys."""
        log_topic = self.log.topic(topic)
        marks = [True] * len(rows) if deleted else None
        if producer is None:
            log_topic.append(list(rows), deleted=marks)
        else:
            self.producer(producer).append(log_topic, list(rows), deleted=marks)

    def producer(self, name: str) -> Producer:
        """A named producer, for appends and promises."""
        if name not in self._producers:
            self._producers[name] = self.log.producer(name)
        return self._producers[name]

    def topic(self, name: str) -> Topic:
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
        assert self._instance is not None, "the app has crashed: call restart() first"
        try:
            return self._instance.step()
        except Crash:
            self._stop()
            raise

    def run(self) -> int:
        """Run epochs until nothing is left to do. Returns how many there were."""
        for epochs in range(MOST_EPOCHS):
            if self.step() is None:
                return epochs
        raise AssertionError(f"the app has not come to rest after {MOST_EPOCHS} epochs")

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
        return self._restart_after_crash()

    @contextmanager
    def _restart_after_crash(self) -> Iterator[None]:
        with suppress(Crash):
            yield
            raise AssertionError(f"no epoch has come to the end of step '{self._crash_at}', so nothing has crashed")
        self.restart()

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

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query over the views."""
        return query(self.directory, sql, parameters).rows()

    def view(self, name: str) -> list[dict[str, Any]]:
        """All rows of a view, sorted. Empty before the first epoch."""
        if not self._has_committed() and name in {view.name for view in self.app.plan.views}:
            return []
        return sorted(self.query(f"SELECT * FROM {name}"), key=lambda row: [_sortable(value) for value in row.values()])

    def account(self, view: str) -> Account:
        """What has become of the events read for a view so far."""
        assert self._instance is not None
        return self._instance.accounts()[view]

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """All rows of a topic, such as `<app>.dead`. Empty if it does not exist."""
        if topic not in self.log.topics():
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

    def _has_committed(self) -> bool:
        from penstock.engine.ledger.ledger import Ledger

        return Ledger(self.directory).last_epoch() > 0

    def _cut_of(self, topic: str) -> SourceCut | None:
        from penstock.engine.ledger.ledger import Ledger

        last = Ledger(self.directory).last_commit()
        return None if last is None else last.live.cut.sources.get(topic)

    @property
    def directory(self) -> Path:
        """The folder of the app: its epochs, its states, its views."""
        return self.log.apps_folder / self.app.name

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
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
