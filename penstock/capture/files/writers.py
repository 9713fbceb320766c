"""The writers of `penstock produce`: with a name, which stores each record once, and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.capture.files.earlier_records import EarlierRecords, earlier_records
from penstock.contracts import Position, TopicRows
from penstock.errors import DeclarationError
from penstock.log import Log, LogWriter, Topic

_INPUTS = "inputs"


class InputWriter:
    """Writes one input to one topic, under a name. The same name may write one input to each of several topics.

    The position of the name is `{"inputs": {topic's id: position of its input}}`. Because it uses ids, a topic that is
    dropped and created again reads its input from the beginning.
    """

    def __init__(self, writer: LogWriter, topic: Topic, earlier: EarlierRecords) -> None:
        self._writer = writer
        self._topic_id = topic.id
        self._earlier = earlier
        self._inputs = _input_positions(writer.position, writer.name)

    @property
    def token(self) -> int:
        return self._writer.token

    @property
    def position(self) -> Position | None:
        """How far the input has been stored, including by earlier versions."""
        stored = self._inputs.get(self._topic_id)
        if stored is not None or not self._earlier.oldest:
            return stored
        return {"records": self._earlier.oldest}

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        inputs = {**self._inputs, self._topic_id: position}
        stored = self._writer.write(rows, {_INPUTS: inputs})
        self._inputs = inputs
        return stored

    def close(self) -> None:
        self._writer.close()


def open_input_writer(log: Log, name: str, topic: Topic) -> tuple[InputWriter, EarlierRecords]:
    """Open the writer of this name for one topic, which fences the last; and what earlier versions stored under it."""
    earlier = earlier_records(topic, log.producer(name))
    return InputWriter(log.writer(name), topic, earlier), earlier


class UnnamedWriter:
    """Appends rows as they come. It remembers nothing: rows that are written again are stored again."""

    token = 0

    def __init__(self, log: Log) -> None:
        self._log = log
        self.position: Position | None = None

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        for part in rows:
            self._log.topic(part.topic).append_in_pieces(part.rows, deleted=part.deleted)
        self.position = position
        return True

    def close(self) -> None:
        """Nothing to close."""


def _input_positions(position: Position | None, name: str) -> dict[str, Position]:
    inputs = position.get(_INPUTS) if isinstance(position, Mapping) else None
    if position is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise DeclarationError(
            f"writer '{name}': it does not write inputs of `penstock produce`; its position is {position!r:.200}",
            hint="use another name for this input",
        )
    return {key: value for key, value in inputs.items() if value is not None}
