"""The writer of an app in its log: who may write for the app, and what topics have of it.

Its token is the app's token: opening it replaces whoever ran the app before. Its position says which epoch the topics
of the app's sinks have, and is stored in the same step as their rows. The rows that are set aside (`side_topics`) are
written under the same name, and only counted: which of them are there already is told by the rows themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.contracts import Log, Position, TopicRows, Writer
from penstock.engine.ledger.ledger import instance_name
from penstock.engine.ledger.upgrade import epoch_in_topics_before
from penstock.errors import DamagedError, DeclarationError, FencedError


@dataclass(frozen=True, slots=True)
class Written:
    """What topics have of an app. `created` distinguishes the app from one that was begun anew under its name.

    `epoch` is the last that sinks have written, 0 for none. `aside` counts the writes of rows that were set aside.
    """

    created: int
    epoch: int = 0
    aside: int = 0


class AppWriter:
    """Writes to the topics of an app, as its newest instance."""

    def __init__(self, writer: Writer, app: str) -> None:
        self._writer = writer
        self._app = app
        self._written: Written | None = None

    @property
    def token(self) -> int:
        return self._writer.token

    def begin(self, written: Written) -> None:
        """Continue from what topics have of the app (see `written_by`). Called before anything else."""
        self._written = written

    def take_over(self, app: str, token: int) -> int:
        """The last epoch that topics have. FencedError unless this token is the app's newest."""
        if token != self.token or app != self._app:
            raise FencedError(
                f"app '{app}': instance {token} was replaced by instance {self.token}",
                hint="only the newest instance of an app runs; end this one, or start it again to take over",
            )
        self.refuse_if_replaced()
        return self.epoch

    @property
    def epoch(self) -> int:
        """The last epoch that sinks have written; 0 for none."""
        return self._known().epoch

    def write_epoch(self, rows: Sequence[TopicRows], epoch: int) -> None:
        """Store the rows of sinks, and that topics have this epoch."""
        self._write(rows, replace(self._known(), epoch=epoch))

    def write_aside(self, rows: Sequence[TopicRows]) -> None:
        """Store rows that were set aside."""
        known = self._known()
        self._write(rows, replace(known, aside=known.aside + 1))

    def refuse_if_replaced(self) -> None:
        """FencedError if another instance has taken over. Nothing else is changed."""
        self._write((), self._known())

    def close(self) -> None:
        self._writer.close()

    def _write(self, rows: Sequence[TopicRows], written: Written) -> None:
        self._writer.write(rows, _encode(written))
        self._written = written

    def _known(self) -> Written:
        if self._written is None:
            raise DeclarationError(f"app '{self._app}': its writer has not been started", hint="call begin first")
        return self._written


def open_app_writer(log: Log, app: str) -> AppWriter:
    """Become the instance that writes for this app. Whoever was it before is refused from now on."""
    return AppWriter(log.writer(instance_name(app)), app)


def written_by(log: Log, app: str, created: int) -> Written:
    """What topics have of an app that was begun at this time. Nobody is replaced by asking."""
    stored = _decode(log.position(instance_name(app)), app)
    if stored is not None and stored.created == created:
        return stored
    return Written(created, epoch_in_topics_before(log, app, created) if stored is None else 0)


def _encode(written: Written) -> Position:
    return {"created": written.created, "epoch": written.epoch, "aside": written.aside}


def _decode(position: Position | None, app: str) -> Written | None:
    if position is None:
        return None
    if isinstance(position, Mapping) and position.keys() == {"created", "epoch", "aside"}:
        created, epoch, aside = (position[name] for name in ("created", "epoch", "aside"))
        if isinstance(created, int) and isinstance(epoch, int) and isinstance(aside, int):
            return Written(created, epoch, aside)
    raise DamagedError(
        f"app '{app}': the position of its writer '{instance_name(app)}' is not one of an app; found {position!r:.200}",
        hint="nothing but the app may write under this name",
    )
