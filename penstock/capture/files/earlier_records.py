"""Recognises the records that earlier versions of Penstock stored under the name of an input.

`penstock produce --producer NAME` used to append as a producer whose sequence, divided by the number of partitions, was
the number of the last record of an append. So each partition remembers how many records it has seen, and after a crash
some partitions may have seen more than others. What those versions stored is not stored again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contracts import Rows
from penstock.log import Producer, Topic


@dataclass(frozen=True, slots=True)
class EarlierRecords:
    """The number of the last record that each partition of a topic has seen."""

    topic: Topic
    seen: tuple[int, ...]

    @property
    def oldest(self) -> int:
        """All records up to this one are stored. Without a key, each append went to one partition, so the furthest
        partition decides."""
        return min(self.seen) if self.topic.settings.key else self.newest

    @property
    def newest(self) -> int:
        """No record after this one is stored."""
        return max(self.seen)

    def is_new(self, numbers: Sequence[int], rows: Rows) -> list[bool]:
        """For each row, whether it is not stored yet. `numbers` are the numbers of the rows' records."""
        if not self.topic.settings.key:
            return [number > self.newest for number in numbers]
        partitions = self.topic.partitions_of(rows)
        return [number > self.seen[partition] for number, partition in zip(numbers, partitions, strict=True)]


def earlier_records(topic: Topic, producer: Producer) -> EarlierRecords:
    """What the partitions remember of a producer. Sequence -1 means none, and becomes record 0."""
    partitions = topic.settings.partitions
    return EarlierRecords(topic, tuple(max(0, sequence // partitions) for sequence in producer.sequences(topic)))
