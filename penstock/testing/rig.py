"""The rig: an app that runs only when a test says so, on a clock that only the test moves.

    with Rig(app) as rig:
        rig.append("orders", [{"order_id": 1, "amount": 5, "placed_at": "2024-05-01 10:00:00"}])
        rig.advance("1 minute")
        rig.run()
        assert rig.view("revenue") == [...]

The rig is a real log and a real engine in a folder of their own. Starting Spark takes some seconds;
a test run starts it once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.derive.views import query
from penstock.log import Log, Topic
from penstock.paths import app_directory
from penstock.units import NO_TIME, parse_duration

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.engine.epoch import Instance, Progress
    from penstock.engine.ledger.records import Account
    from penstock.engine.plan.cut import SourceCut
    from penstock.engine.run.compiled import CompiledPlan
    from penstock.engine.spark import SparkSession
    from penstock.flow.plan import Plan
    from penstock.log.producer import Producer

Step = Literal["plan", "run", "publish", "commit"]
DEFAULT_START = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
# A run that has not come to rest after so many epochs never will.
MOST_EPOCHS = 10_000


class Crash(Exception):  # noqa: N818 - it is not an error: the test asked for it
    """The instance died where the test had said. `rig.restart()` begins the next one."""


class Rig:
    """An app under test. Every method that is not about looking may be called at any time, in any order.

    `start` is what the clock shows at first; event times may be anything. `spark` is a session to use; without one, the
    running session is used, or a small one is started.
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
        self.log = Log(self._folder, clock=lambda: self.now.timestamp())
        self._instance: Instance | None = None
        self._compiled: tuple[Plan, CompiledPlan] | None = None
        self.restart()

    # -- what happens -------------------------------------------------------------------------------------------------

    def append(
        self, topic: str, rows: Sequence[Mapping[str, Any]], *, producer: str | None = None, deleted: bool = False
    ) -> None:
        """Append events now, as a producer of this name or as nobody. `deleted`: rows that delete their key."""
        opened = self.log.topic(topic)
        marks = [True] * len(rows) if deleted else None
        if producer is None:
            opened.append(list(rows), deleted=marks)
        else:
            self.producer(producer).append(opened, list(rows), deleted=marks)

    def producer(self, name: str) -> Producer:
        """A named producer, to append or to promise with."""
        if name not in self._producers:
            self._producers[name] = self.log.producer(name)
        return self._producers[name]

    def topic(self, name: str) -> Topic:
        return self.log.topic(name)

    def advance(self, duration: str) -> None:
        """Move the clock."""
        self.now += timedelta(seconds=parse_duration(duration))

    def step(self) -> Progress | None:
        """Run one epoch; None if there was nothing to do."""
        assert self._instance is not None, "the app has crashed: call restart() first"
        try:
            return self._instance.step()
        except Crash:
            self._stop()
            raise

    def run(self) -> int:
        """Run epochs until nothing is left to do; how many there were."""
        for epochs in range(MOST_EPOCHS):
            if self.step() is None:
                return epochs
        raise AssertionError(f"the app has not come to rest after {MOST_EPOCHS} epochs")

    def crash_at(self, step: Step) -> None:
        """Let the next epoch die right after this step. It raises `Crash`."""
        self._crash_at = step

    def restart(self, app: App | None = None) -> None:
        """Begin a new instance, of the same program or of a changed one. One that runs is replaced, not stopped."""
        from penstock.engine.epoch import Instance

        if app is not None:
            self.app = app
        self._stop()
        self._crash_at = None
        plan = self.app.plan
        # Building a plan takes longer than most epochs of a test: the same program is built once.
        compiled = self._compiled[1] if self._compiled is not None and self._compiled[0] == plan else None
        self._instance = Instance(
            plan,
            self.log,
            self.app.settings,
            self._spark,
            clock=self._clock,
            reached=self._reached,
            compiled=compiled,
        )
        self._compiled = plan, self._instance.compiled

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query over the views."""
        return query(self.directory, sql, parameters).rows()

    def view(self, name: str) -> list[dict[str, Any]]:
        """All rows of a view, sorted; none before the first epoch."""
        if not self._has_committed() and name in {view.name for view in self.app.plan.views}:
            return []
        return sorted(self.query(f"SELECT * FROM {name}"), key=lambda row: [_sortable(one) for one in row.values()])

    def account(self, view: str) -> Account:
        """What became of the events on their way to a view, so far."""
        assert self._instance is not None
        return self._instance.accounts()[view]

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """All rows of a topic, such as `<app>.dead`; none if it does not exist."""
        if topic not in self.log.topics():
            return []
        rows: list[dict[str, Any]] = self.log.topic(topic).read().to_pylist()
        return rows

    def positions(self, topic: str) -> dict[int, int]:
        """The offset up to which the app has read each partition of a topic, as of the last epoch; none at first."""
        cut = self._cut_of(topic)
        return {} if cut is None else dict(cut.ends)

    def watermark(self, topic: str) -> datetime | None:
        """How far time has come in a topic, as of the last epoch; None if no event has come with a time."""
        cut = self._cut_of(topic)
        if cut is None or cut.time is None or cut.time.watermark == NO_TIME:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=cut.time.watermark)

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
        return app_directory(self._folder, self.app.name)

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

    def _reached(self, step: str) -> None:
        if step == self._crash_at:
            self._crash_at = None
            raise Crash(f"after step '{step}'")


def _sortable(value: object) -> tuple[str, Any]:
    return (type(value).__name__, value if not isinstance(value, dict | list) else str(value))
