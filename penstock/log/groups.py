"""Consumer groups: members that share the partitions of some topics, and the offsets they have committed.

A member holds its partitions by a lease that it renews when it polls. Partitions move in two steps, so that no two
members ever own one: the old owner lets go (or its lease runs out), then the new one takes it. Offsets can only be
committed by the owner. Leases count in time since boot, so setting the clock does not end them.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.contracts import Batch, Start
from penstock.errors import DeclarationError, FencedError, UnavailableError
from penstock.log.catalog import Catalog, number_of
from penstock.log.catalog_rows import put, put_if_new, rows
from penstock.log.holds import Holds
from penstock.log.reader import READ_BYTES, UNDECIDED_SECONDS, Reader
from penstock.log.topic import Topic
from penstock.storage.files import boot_id
from penstock.storage.watch import Watch

LEASE_SECONDS = 30.0
HEARTBEAT_SECONDS = 1.0

TopicPartition = tuple[str, int]
TopicByName = Callable[[str], Topic]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch and the topic it came from."""

    topic: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one partition. `committed` is None before its first commit."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int
    member: str | None


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a reset: where a partition's committed offset is, and where it would go."""

    topic: str
    partition: int
    committed: int | None
    target: int


class Group:
    """Made by `Log.group`."""

    def __init__(
        self, catalog: Catalog, holds: Holds, topic_by_name: TopicByName, members: list[Member], name: str
    ) -> None:
        self.name = name
        self._catalog = catalog
        self._holds = holds
        self._topic = topic_by_name
        self._members = members  # of the whole log, which closes them when it is closed

    def join(
        self,
        topics: Sequence[str] | str,
        *,
        start: Start = "start",
        lease: float = LEASE_SECONDS,
        on_release: Callable[[Member], None] | None = None,
    ) -> Member:
        """Become a member. `start` is where partitions begin that the group has never committed.

        `on_release` is called before partitions are handed to another member: the last moment to commit them.
        """
        opened = {name: self._topic(name) for name in ([topics] if isinstance(topics, str) else topics)}
        if not opened:
            raise DeclarationError(f"group '{self.name}': a member needs at least one topic")
        for topic in opened.values():
            topic.positions(start)  # refuses a wrong one before anybody has joined
        with self._holds.locked(), self._catalog.change() as connection:  # so that no compaction overlooks the group
            for name in opened:
                put_if_new(connection, "subscriptions", self.name, name)
        member = Member(self._catalog, self.name, opened, start=start, lease=lease, on_release=on_release)
        self._members.append(member)
        return member

    def topics(self) -> list[str]:
        with self._catalog.look() as connection:
            return sorted(str(topic) for _, topic in rows(connection, "subscriptions", "group_name = ?", (self.name,)))

    def members(self) -> dict[str, list[TopicPartition]]:
        """The members whose leases run, with the partitions each owns."""
        with self._catalog.look() as connection:
            alive = _living_members(connection, self.name)
            owned = _assignments(connection, self.name)
        return {member: [partition for partition, owner in owned.items() if owner == member] for member in alive}

    def committed(self, topic: str) -> dict[int, int]:
        with self._catalog.look() as connection:
            return _committed_offsets(connection, self.name, topic)

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets from outside, for readers that are not members. Refused while a member owns the partition."""
        self._topic(topic).files.check_commit(offsets)
        with self._catalog.change() as connection:
            _forget_expired(connection, self.name)
            store_offsets(connection, self.name, None, topic, offsets)

    def lag(self) -> list[Lag]:
        lags = []
        owners = {partition: member for member, partitions in self.members().items() for partition in partitions}
        for name in self.topics():
            topic, committed = self._topic(name), self.committed(name)
            starts, ends = topic.starts(), topic.ends()
            for number, end in ends.items():
                done = committed.get(number)
                behind = end - max(done if done is not None else 0, starts[number])
                lags.append(Lag(name, number, done, end, max(0, behind), owners.get((name, number))))
        return lags

    def plan_reset(self, topic: str, to: Start, *, partitions: Sequence[int] | None = None) -> list[Move]:
        """What a reset would do. Nothing is changed."""
        committed = self.committed(topic)
        targets = self._topic(topic).positions(to, partitions=partitions)
        return [Move(topic, number, committed.get(number), target) for number, target in targets.items()]

    def reset(self, moves: Sequence[Move]) -> None:
        """Carry out a planned reset, unless the group has living members or has moved since it was planned."""
        with self._catalog.change() as connection:
            self._refuse_if_alive(connection)
            for move in moves:
                if _committed_offsets(connection, self.name, move.topic).get(move.partition) != move.committed:
                    raise UnavailableError(
                        f"group '{self.name}': topic '{move.topic}' partition {move.partition} has moved since the "
                        "reset was planned",
                        hint="plan the reset again",
                    )
                store_offsets(connection, self.name, None, move.topic, {move.partition: move.target})

    def replay(self, topic: str, start: Start, *, columns: Sequence[str] | None = None) -> Reader:
        """A reader over what the group has read or will read, which leaves the group as it is."""
        return self._topic(topic).reader(start, columns=columns)

    def drop(self) -> None:
        """Forget the group: its offsets, and its say in when delete markers may go."""
        with self._catalog.change() as connection:
            self._refuse_if_alive(connection)
            for table in ("subscriptions", "offsets", "members", "assignments"):
                connection.execute(f"DELETE FROM {table} WHERE group_name = ?", (self.name,))

    def _refuse_if_alive(self, connection: sqlite3.Connection) -> None:
        _forget_expired(connection, self.name)
        alive = _living_members(connection, self.name)
        if alive:
            raise UnavailableError(
                f"group '{self.name}': it has living members: {', '.join(sorted(alive))}",
                hint="stop them, or wait until their leases run out, and try again",
            )


class Member:
    """One reader of a group. `poll`, process, `commit`; whatever was not committed is delivered again."""

    def __init__(
        self,
        catalog: Catalog,
        group: str,
        topics: Mapping[str, Topic],
        *,
        start: Start,
        lease: float,
        on_release: Callable[[Member], None] | None,
    ) -> None:
        self.group = group
        self.id = f"{group}-{uuid.uuid4().hex[:12]}"
        self._catalog = catalog
        self._topics = dict(topics)
        self._start = start
        self._lease = lease
        self._on_release = on_release
        self._owned: set[TopicPartition] = set()
        self._readers: dict[str, Reader] = {}
        self._watch = Watch([])
        self._next_heartbeat = 0.0
        self._closed = False
        try:
            self.heartbeat()
        except BaseException:
            self.close()  # or it would hold its partitions until its lease runs out
            raise

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def owned(self) -> set[TopicPartition]:
        """The partitions this member reads."""
        return set(self._owned)

    def poll(self, timeout: float | None = 0.0, *, max_bytes: int = READ_BYTES) -> list[Delivery]:
        """The next batches, waiting up to `timeout` seconds (None: for ever). Renews the lease."""
        self._refuse_if_closed()
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if time.monotonic() >= self._next_heartbeat:
                self.heartbeat()
            deliveries = self._look(deadline, max_bytes)
            if deliveries or time.monotonic() >= deadline:
                return deliveries

    def commit(self) -> None:
        """Commit everything `poll` has returned. Refused with FencedError when another member took a partition over."""
        self._refuse_if_closed()
        with self._catalog.change() as connection:
            for name, offsets in self.positions().items():
                store_offsets(connection, self.group, self.id, name, offsets)

    def positions(self) -> dict[str, dict[int, int]]:
        """For every partition the offset after the last row `poll` has returned."""
        return {name: reader.positions for name, reader in self._readers.items()}

    def heartbeat(self) -> None:
        """Renew the lease, let go what others should have, take what is free. `poll` does this by itself."""
        self._refuse_if_closed()
        self._next_heartbeat = time.monotonic() + min(HEARTBEAT_SECONDS, self._lease / 3)
        may_release = self._on_release is None
        if self._on_release is not None and self._has_too_much():
            self._on_release(self)
            may_release = True
        with self._catalog.change() as connection:
            _forget_expired(connection, self.group)
            lost = self._lost(connection)
            self._renew(connection)
            wanted = self._wanted_partitions(connection)
            for topic, partition in self._owned - wanted if may_release else ():
                connection.execute(
                    "DELETE FROM assignments WHERE group_name = ? AND topic = ? AND partition = ? AND member = ?",
                    (self.group, topic, partition, self.id),
                )
            for topic, partition in wanted:
                put_if_new(connection, "assignments", self.group, topic, partition, self.id)
            owned = {partition for partition, owner in _assignments(connection, self.group).items() if owner == self.id}
        if lost:
            # Others may have committed there: begin where the group is, not where we were.
            self._take(self._owned - lost)
        if owned != self._owned:
            self._take(owned)
        if self._owned - wanted:  # somebody has joined just now, and `on_release` has to be called first
            self._next_heartbeat = time.monotonic()

    def close(self) -> None:
        """Leave the group. Uncommitted rows go to whoever takes the partitions."""
        if self._closed:
            return
        self._closed = True
        self._stop_reading()
        self._owned = set()
        with self._catalog.change() as connection:
            _forget_member(connection, self.group, self.id)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise DeclarationError(f"group '{self.group}': this member has left", hint="join the group again")

    def _look(self, deadline: float, max_bytes: int) -> list[Delivery]:
        """Take what is there; with nothing there, wait, but not past the next heartbeat."""
        for name, reader in self._readers.items():
            batches = reader.poll(0.0, max_bytes=max_bytes)
            if batches:
                return [Delivery(name, batch) for batch in batches]
        wait = max(0.0, min(self._next_heartbeat, deadline) - time.monotonic())
        undecided = any(reader.undecided for reader in self._readers.values())
        self._watch.wait(min(wait, UNDECIDED_SECONDS) if undecided else wait)
        return []

    def _has_too_much(self) -> bool:
        """Whether the next heartbeat will hand partitions to others. Those that are lost already are dropped first."""
        with self._catalog.look() as connection:
            lost = self._lost(connection)
            wanted = self._wanted_partitions(connection)
        if lost:
            self._take(self._owned - lost)
        return bool(self._owned - wanted)

    def _lost(self, connection: sqlite3.Connection) -> set[TopicPartition]:
        """What we held until our lease ran out."""
        owners = _assignments(connection, self.group)
        return {partition for partition in self._owned if owners.get(partition) != self.id}

    def _renew(self, connection: sqlite3.Connection) -> None:
        expires = time.monotonic() + self._lease
        put(connection, "members", self.group, self.id, json.dumps(sorted(self._topics)), boot_id(), expires)

    def _wanted_partitions(self, connection: sqlite3.Connection) -> set[TopicPartition]:
        """Our share: every topic's partitions dealt out in turn to the members that read it, in the order of names."""
        members = rows(connection, "members", "group_name = ?", (self.group,), order="member")
        wanted = set()
        for shift, (name, topic) in enumerate(sorted(self._topics.items())):
            readers = [member for _, member, topics, *_ in members if name in json.loads(str(topics))] or [self.id]
            for number in range(topic.settings.partitions):
                if readers[(number + shift) % len(readers)] == self.id:
                    wanted.add((name, number))
        return wanted

    def _take(self, owned: set[TopicPartition]) -> None:
        """Read what we own now: partitions we keep go on where they were, new ones begin where the group committed."""
        keep = owned & self._owned
        before = self.positions()
        self._stop_reading()
        for name, topic in self._topics.items():
            numbers = sorted(number for owner_topic, number in owned if owner_topic == name)
            if not numbers:
                continue
            with self._catalog.look() as connection:
                committed = _committed_offsets(connection, self.group, name)
            new = [number for number in numbers if number not in committed]
            fresh = topic.positions(self._start, partitions=new)
            positions = {number: committed.get(number, fresh.get(number, 0)) for number in numbers}
            positions |= {number: before[name][number] for number in numbers if (name, number) in keep}
            self._readers[name] = topic.reader(positions, partitions=numbers)
        self._owned = owned
        self._watch = Watch([self._topics[name].files.partition(number).tail_file.path for name, number in owned])

    def _stop_reading(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers = {}
        self._watch.close()


def group_names(catalog: Catalog) -> list[str]:
    with catalog.look() as connection:
        return sorted({str(group) for group, _ in rows(connection, "subscriptions")})


def store_offsets(
    connection: sqlite3.Connection, group: str, member: str | None, topic: str, offsets: Mapping[int, int]
) -> None:
    """Commit offsets inside a change of the catalogue, for the member that owns the partitions, or for nobody."""
    owners = _assignments(connection, group)
    for partition, offset in offsets.items():
        owner = owners.get((topic, partition))
        if owner != member:
            raise FencedError(
                f"group '{group}': topic '{topic}' partition {partition} belongs to "
                + (f"member {owner}" if owner else "no member")
                + (f", not to {member}" if member else ""),
                hint="this member's lease ran out; what it did not commit is delivered again"
                if member
                else "stop the members, or let them commit",
            )
        put(connection, "offsets", group, topic, partition, offset)
    put_if_new(connection, "subscriptions", group, topic)


def _assignments(connection: sqlite3.Connection, group: str) -> dict[TopicPartition, str]:
    return {
        (str(topic), number_of(partition)): str(member)
        for _, topic, partition, member in rows(connection, "assignments", "group_name = ?", (group,))
    }


def _committed_offsets(connection: sqlite3.Connection, group: str, topic: str) -> dict[int, int]:
    found = rows(connection, "offsets", "group_name = ? AND topic = ?", (group, topic))
    return {number_of(partition): number_of(offset) for _, _, partition, offset in found}


def _living_members(connection: sqlite3.Connection, group: str) -> set[str]:
    """The members whose leases run. A lease of an earlier boot has run out."""
    where = "group_name = ? AND expires >= ? AND boot = ?"
    return {str(row[1]) for row in rows(connection, "members", where, (group, time.monotonic(), boot_id()))}


def _forget_expired(connection: sqlite3.Connection, group: str) -> None:
    alive = _living_members(connection, group)
    for _, member, *_ in rows(connection, "members", "group_name = ?", (group,)):
        if member not in alive:
            _forget_member(connection, group, str(member))
    # Assignments of a member that is not even on the list.
    members = "SELECT member FROM members WHERE group_name = ?"
    connection.execute(f"DELETE FROM assignments WHERE group_name = ? AND member NOT IN ({members})", (group, group))


def _forget_member(connection: sqlite3.Connection, group: str, member: str) -> None:
    for table in ("members", "assignments"):
        connection.execute(f"DELETE FROM {table} WHERE group_name = ? AND member = ?", (group, member))
