"""What `penstock run` prints: on stderr for people, one changing line on a terminal and a line now and then elsewhere;
on stdout for programs, a JSON document for every event."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.output import count_text, instant_text, json_value, print_line, print_stderr

if TYPE_CHECKING:
    from penstock.capture.first_copy import CopyProgress
    from penstock.capture.supervise import CaptureNews
    from penstock.engine.ledger.instances import RunningInstance
    from penstock.engine.loop import Started
    from penstock.engine.progress import Progress
    from penstock.errors import UnavailableError

# How often to print a line of progress if stderr is not a terminal.
SECONDS_BETWEEN_LINES = 10.0
# A catch-up that takes at least so long is shown as a bar, and measured over so many epochs.
SHOWN_FROM_SECONDS = 5.0
EPOCHS_MEASURED = 20
_SHORTEST_BAR, _LONGEST_BAR = 6, 24


class RunOutput:
    """Prints what an app does while it runs; its methods are those of a `Listener`."""

    def __init__(self, app: str, *, as_json: bool) -> None:
        self._app = app
        self._as_json = as_json
        self._terminal = sys.stderr.isatty() and not as_json
        self._line = _ChangingLine() if self._terminal else None
        self._printed_at = -SECONDS_BETWEEN_LINES
        self._pending: str | None = None
        self._catch_up = CatchUp()
        self._rows = self._epochs = 0
        self._began = time.monotonic()
        self._cut_short = False
        self._writing = threading.RLock()  # captures are watched by threads of their own

    def starting(self) -> None:
        self._say(f"app '{self._app}': starting Spark")

    def started(self, started: Started) -> None:
        replaced = [describe_instance(instance) for instance in started.replaced]
        seconds = round(time.monotonic() - self._began, 1)
        self._tell("started", topics=list(started.topics), replaced=replaced, seconds=seconds)
        for instance in replaced:
            self._say(f"app '{self._app}': replaced the one that ran as {instance}; that one stops")

    def idle(self, started: Started) -> None:
        self._tell("ready", topics=list(started.topics))
        self._say(fit(f"app '{self._app}': ready, waiting for rows in ", started.topics, self._width()))

    def capture(self, news: CaptureNews) -> None:
        """What has happened to a capture. Called from threads."""
        with self._writing:
            self._tell("capture", **asdict(news))
            self._say(f"capture '{news.capture}': {news.text}")
            if news.hint:
                self._say(f"hint: {news.hint}")

    def copying(self, progress: CopyProgress) -> None:
        """How far the first copies have come, which the app waits for. Called several times a second."""
        with self._writing:
            if self._as_json:
                self._tell_copying(progress)
            else:
                self._show(str(progress)[: self._width()])

    def _tell_copying(self, progress: CopyProgress) -> None:
        if time.monotonic() - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._tell("copying", **asdict(progress))
            self._printed_at = time.monotonic()

    def progress(self, progress: Progress) -> None:
        with self._writing:
            self._progress(progress)

    def _progress(self, progress: Progress) -> None:
        self._rows += progress.rows
        self._epochs += 1
        self._tell("epoch", **_document(progress))
        if self._as_json:
            return
        self._say_gaps(progress)
        self._catch_up.add(progress, time.monotonic())
        self._show(self._catch_up.line(progress, self._width()) or progress_line(progress, self._width()))

    def _show(self, line: str) -> None:
        """A line that the next one replaces: at once on a terminal, elsewhere one is printed now and then."""
        if self._line is not None:
            self._line.show(line)
        elif time.monotonic() - self._printed_at >= SECONDS_BETWEEN_LINES:
            print_stderr(line)
            self._printed_at, self._pending = time.monotonic(), None
        else:
            self._pending = line

    def _say_gaps(self, progress: Progress) -> None:
        from penstock.engine.ledger.gaps import gap_text

        for gap in progress.gaps:
            self._say(f"left out, no longer in the log: {gap_text(gap)}; missing in {', '.join(gap.outputs)}")

    def waiting(self, error: UnavailableError) -> None:
        self._tell("waiting", reason=error.message, hint=error.hint)
        hint = f" ({error.hint})" if error.hint else ""
        self._say(f"waiting since {time.strftime('%H:%M:%S')}: {error.message}{hint}")

    def available(self, seconds: float) -> None:
        self._tell("continuing", seconds=round(seconds, 1))
        self._say(f"continues after {duration_text(seconds)}")

    def restarting(self, what: str) -> None:
        self._tell("restarting", reason=what)
        self._say(what)

    def cut_short(self) -> None:
        self._cut_short = True

    def stopping(self) -> None:
        """Called in a signal handler, in the middle of anything: it writes to the terminal past all buffers."""
        if self._terminal:
            os.write(2, b"\r\x1b[Kstopping after this epoch; press Ctrl-C again to stop at once")
            assert self._line is not None
            self._line.forget()

    def finish(self) -> None:
        """The last line."""
        if self._pending:
            print_stderr(self._pending)
        what = f"after {count_text(self._epochs, 'epoch')} and {count_text(self._rows, 'row')}"
        self._tell("stopped", epochs=self._epochs, rows=self._rows, cut_short=self._cut_short)
        if self._cut_short:
            self._say(f"stopped in the middle of an epoch, {what}; the next start runs that epoch again")
        else:
            self._say(f"stopped {what}")

    def __enter__(self) -> RunOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        elif self._line is not None:  # the error gets a line of its own
            self._line.end()

    def _tell(self, event: str, **content: object) -> None:
        if self._as_json:
            with self._writing:
                print_line(json.dumps(json_value({"event": event, **content})))

    def _say(self, text: str) -> None:
        """A line that stays."""
        with self._writing:
            if self._line is not None:
                self._line.end()
            print_stderr(text)

    def _width(self) -> int | None:
        return shutil.get_terminal_size().columns - 1 if self._terminal else None


class _ChangingLine:
    """The last line of a terminal, which is written again and again."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._shown = True

    def forget(self) -> None:
        """The line was overwritten by something that is to go."""
        self._shown = False

    def end(self) -> None:
        """Leave the line as it is, and continue below; what a terminal echoes for Ctrl-C is overwritten."""
        sys.stderr.write("\n" if self._shown else "\r\x1b[K")
        self._shown = False


class CatchUp:
    """How fast rows that wait are read, over the last epochs."""

    def __init__(self) -> None:
        self._lags: deque[tuple[float, int, int]] = deque(maxlen=EPOCHS_MEASURED)  # when, rows that wait, rows read
        self._read = 0

    def add(self, progress: Progress, now: float) -> None:
        if not self._lags:
            self._lags.append((now - progress.seconds, progress.lag + progress.rows, 0))
        self._read += progress.rows
        self._lags.append((now, progress.lag, self._read))

    def line(self, progress: Progress, width: int | None) -> str | None:
        """A line with a bar and the time that remains; None unless it will take some time to catch up."""
        if not progress.lag:
            self._lags.clear()
            self._read = 0
            return None
        if len(self._lags) < 3:  # the first epoch alone says little: it takes longer than others
            return None
        (began, lag_then, read_then), (now, lag, read) = self._lags[0], self._lags[-1]
        seconds = max(now - began, 1e-9)
        if lag * seconds < SHOWN_FROM_SECONDS * (read - read_then):
            return None
        gained = (lag_then - lag) / seconds
        return catch_up_line(
            "building changed views" if progress.building else "catching up",
            self._read,
            lag,
            lag / gained if gained > 0 else None,
            width,
        )


def catch_up_line(title: str, read: int, lag: int, seconds: float | None, width: int | None) -> str:
    """`seconds` is the time that remains; None if more rows come in than are read."""
    share = read / (read + lag)
    remaining = "more come in than are read" if seconds is None else f"about {duration_text(seconds)} left"
    parts = [f"{share:4.0%}", f"{count_text(lag, 'row')} to go", remaining]
    texts = [", ".join(parts), ", ".join([parts[0], parts[2]]), parts[0].strip()]
    if width is None:
        return f"{title}: {texts[0].strip()}"
    text = next((text for text in texts if len(title) + len(text) + _SHORTEST_BAR + 2 <= width), texts[-1])
    length = max(0, min(_LONGEST_BAR, width - len(title) - len(text) - 2))
    done = round(share * length)
    return f"{title} {'━' * done}{'┄' * (length - done)} {text}"[:width]


def progress_line(progress: Progress, width: int | None) -> str:
    """What an epoch did, and what was late or dead in the whole run; what matters least goes if it is too long."""
    rows, mark = count_text(progress.rows, "row"), progress.watermark
    seconds = f"{rows} in {progress.seconds:.2f} s"
    lag = f"lag {progress.lag:,}"
    watermark = f"watermark {'none' if mark is None else instant_text(mark - mark % 1_000_000)}"
    counts = [f"late {progress.totals.late:,}"]
    if progress.totals.dead:
        counts.append(f"dead {progress.totals.dead:,}")
    epoch, building = f"epoch {progress.epoch:,}", ["building changed views"] if progress.building else []
    variants = [
        [epoch, seconds, lag, watermark, *counts, *building],
        [epoch, rows, lag, watermark, *counts, *building],
        [epoch, seconds, lag, *counts],
        [epoch, rows, lag, *counts],
        [epoch, lag, *counts],
    ]
    lines = [", ".join(variant) for variant in variants]
    return lines[0] if width is None else next((line for line in lines if len(line) <= width), lines[-1][:width])


def fit(start: str, names: Sequence[str], width: int | None) -> str:
    """A line with as many of the names as it has place for."""
    shown = len(names)
    while shown > 1 and width is not None and len(_with_names(start, names, shown)) > width:
        shown -= 1
    return _with_names(start, names, shown)


def _with_names(start: str, names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return f"{start}{', '.join(names[:shown])}{more}"


def describe_instance(instance: RunningInstance) -> str:
    """'process 4711 since 2026-01-31T12:01:10Z', with the host if it is another one."""
    return f"{instance} since {instant_text(instance.since - instance.since % 1_000_000)}"


def duration_text(seconds: float) -> str:
    """'12 s', '3 min 20 s', '2 h 5 min'."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _document(progress: Progress) -> dict[str, object]:
    from penstock.engine.ledger.gaps import gap_document

    return {
        "epoch": progress.epoch,
        "rows": progress.rows,
        "lag": progress.lag,
        "watermark": None if progress.watermark is None else instant_text(progress.watermark),
        "late": progress.late,
        "dead": progress.dead,
        "building": progress.building,
        "seconds": round(progress.seconds, 4),
        "targets": {
            name: {"rows": target.rows, "seconds": round(target.seconds, 4)}
            for name, target in progress.targets.items()
        },
        "totals": {
            "epochs": progress.totals.epochs,
            "rows": progress.totals.rows,
            "late": progress.totals.late,
            "dead": progress.totals.dead,
        },
        "gaps": [gap_document(gap) for gap in progress.gaps],
    }
