from __future__ import annotations

import time

import pytest

from penstock.errors import DeclarationError, FencedError, PenstockError, RangeError, UnavailableError
from penstock.log import Group, Log, Member, Topic, TopicSettings, groups


@pytest.fixture
def events(log: Log) -> Topic:
    return log.create_topic("events", "id long", key="id", partitions=6)


@pytest.fixture
def group(log: Log) -> Group:
    return log.group("readers")


def fill(topic: Topic, count: int = 60) -> None:
    topic.append([{"id": number} for number in range(count)])


def drain(member: Member) -> list[int]:
    found: list[int] = []
    while deliveries := member.poll():
        for delivery in deliveries:
            found += delivery.batch.rows.column("id").to_pylist()
    return found


def settle(*members: Member) -> None:
    """Let every member renew its lease until nobody has anything to hand over."""
    for _ in range(3):
        for member in members:
            member.heartbeat()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time since boot, as the groups see it; the test moves it."""
    now = [time.monotonic()]
    monkeypatch.setattr(groups.time, "monotonic", lambda: now[0])
    return now


def test_one_member_gets_everything(group: Group, events: Topic) -> None:
    fill(events)
    assert sorted(drain(group.join(["events"]))) == list(range(60))


def test_nothing_is_handed_over_before_its_owner_was_told_also_if_somebody_joins_at_that_moment(
    group: Group, events: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(events)
    released: list[int] = []
    first = group.join(["events"], on_release=lambda member: released.append(len(member.owned)))
    look = Member._has_too_much
    joined: list[Member] = []

    def look_and_let_another_join(member: Member) -> bool:
        found = look(member)
        if member is first and not joined:
            joined.append(group.join(["events"]))
        return found

    monkeypatch.setattr(Member, "_has_too_much", look_and_let_another_join)
    first.heartbeat()
    assert (len(first.owned), released) == (6, [])
    first.poll()  # a heartbeat is due, which tells it first
    assert (len(first.owned), released) == (3, [6])
    settle(first, *joined)
    assert (len(first.owned), len(joined[0].owned)) == (3, 3)


def test_members_share_the_partitions(group: Group, events: Topic) -> None:
    fill(events)
    one, two = group.join(["events"]), group.join(["events"])
    settle(one, two)
    assert len(one.owned) == len(two.owned) == 3
    assert not one.owned & two.owned
    assert sorted(drain(one) + drain(two)) == list(range(60))


def test_a_new_member_waits_until_the_old_one_lets_go(group: Group, events: Topic) -> None:
    one = group.join(["events"])
    two = group.join(["events"])
    assert two.owned == set()
    one.heartbeat()
    two.heartbeat()
    assert len(two.owned) == 3


def test_a_member_can_commit_before_it_lets_go(log: Log, events: Topic) -> None:
    fill(events)
    first = log.group("readers").join(["events"], on_release=lambda member: member.commit())
    drained = drain(first)
    second = log.group("readers").join(["events"])
    settle(first, second)
    assert sorted(drained) == list(range(60))
    assert drain(second) == []


def test_what_was_not_committed_is_delivered_again(group: Group, events: Topic) -> None:
    fill(events)
    one = group.join(["events"])
    drain(one)
    one.commit()
    events.append({"id": 100})
    assert drain(one) == [100]
    one.close()
    assert drain(group.join(["events"])) == [100]


def test_the_partitions_of_a_dead_member_go_to_the_others(group: Group, events: Topic, clock: list[float]) -> None:
    fill(events)
    one, two = group.join(["events"], lease=10), group.join(["events"], lease=10)
    settle(one, two)
    drain(one)
    clock[0] += 11
    settle(two)
    assert len(two.owned) == 6
    assert sorted(drain(two)) == list(range(60))
    with pytest.raises(FencedError, match="belongs to member"):
        one.commit()


def test_a_member_that_was_away_too_long_comes_back_with_the_groups_offsets(
    group: Group, events: Topic, clock: list[float]
) -> None:
    fill(events)
    one, two = group.join(["events"], lease=10), group.join(["events"], lease=10)
    settle(one, two)
    drain(one)
    clock[0] += 11
    settle(two)
    drain(two)
    two.commit()
    settle(one, two)
    assert len(one.owned) == 3
    assert drain(one) == []


def test_setting_the_wall_clock_ends_no_lease(group: Group, events: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    one = group.join(["events"], lease=10)
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    two = group.join(["events"], lease=10)
    assert two.owned == set()
    assert len(one.owned) == 6


def test_lag_counts_what_is_not_committed(group: Group, events: Topic) -> None:
    fill(events)
    member = group.join(["events"])
    assert sum(lag.lag for lag in group.lag()) == 60
    drain(member)
    member.commit()
    events.append({"id": 7})
    lags = group.lag()
    assert sum(lag.lag for lag in lags) == 1
    assert {lag.member for lag in lags} == {member.id}


def test_a_reset_is_planned_first_and_changes_nothing_until_carried_out(group: Group, events: Topic) -> None:
    fill(events)
    member = group.join(["events"])
    drain(member)
    member.commit()
    member.close()
    moves = group.plan_reset("events", "start")
    assert all(move.target == 0 and move.committed == events.ends()[move.partition] for move in moves)
    assert group.committed("events") == events.ends()
    group.reset(moves)
    assert sorted(drain(group.join(["events"]))) == list(range(60))


def test_a_reset_is_refused_while_members_live(group: Group, events: Topic) -> None:
    member = group.join(["events"])
    with pytest.raises(UnavailableError, match="it has living members"):
        group.reset(group.plan_reset("events", "end"))
    member.close()
    group.reset(group.plan_reset("events", "end"))


def test_a_reset_is_refused_when_the_group_has_moved_since_the_plan(group: Group, events: Topic) -> None:
    fill(events)
    group.commit("events", {0: 1})
    moves = group.plan_reset("events", "end", partitions=[0])
    group.commit("events", {0: 2})
    with pytest.raises(UnavailableError, match="has moved since"):
        group.reset(moves)


def test_a_replay_leaves_the_group_as_it_is(group: Group, events: Topic) -> None:
    fill(events)
    group.commit("events", events.ends())
    reader = group.replay("events", "start")
    count = 0
    while batches := reader.poll():
        count += sum(len(batch) for batch in batches)
    reader.close()
    assert count == 60
    assert group.committed("events") == events.ends()


def test_a_group_can_begin_at_the_end(group: Group, events: Topic) -> None:
    fill(events)
    member = group.join(["events"], start="end")
    assert drain(member) == []
    events.append({"id": 99})
    assert drain(member) == [99]


def test_a_member_reads_several_topics(group: Group, events: Topic, log: Log) -> None:
    other = log.create_topic("other", "id long", key="id")
    fill(events, 10)
    other.append([{"id": number} for number in range(100, 105)])
    assert sorted(drain(group.join(["events", "other"]))) == [*range(10), *range(100, 105)]


def test_an_offset_that_retention_removed_is_an_error_not_a_skip(log: Log, group: Group) -> None:
    topic = log.create_topic("short", "text string", settings=TopicSettings(segment_bytes=2_000, retention_bytes=2_000))
    group.commit("short", {0: 0})
    for _ in range(20):
        topic.append({"text": "x" * 500})
    assert topic.starts()[0] > 0
    with pytest.raises(RangeError, match="offset 0 does not exist"):
        group.join(["short"])


def test_a_dropped_group_is_forgotten(group: Group, events: Topic, log: Log) -> None:
    group.commit("events", {0: 0})
    assert log.groups() == ["readers"]
    group.drop()
    assert log.groups() == []


def test_a_waiting_member_is_woken_by_an_append(group: Group, events: Topic) -> None:
    import threading

    member = group.join(["events"])
    writer = threading.Timer(0.05, lambda: events.append({"id": 1}))
    writer.start()
    deliveries = member.poll(timeout=30)
    writer.join()
    assert [row["id"] for delivery in deliveries for row in delivery.batch.rows.to_pylist()] == [1]


def test_a_member_needs_a_topic_that_exists(group: Group) -> None:
    with pytest.raises(DeclarationError, match="at least one topic"):
        group.join([])
    with pytest.raises(DeclarationError, match="it does not exist"):
        group.join(["nowhere"])


def test_a_member_that_has_left_does_nothing_any_more(group: Group, events: Topic) -> None:
    member = group.join(["events"])
    member.close()
    member.close()
    for use in (member.poll, member.commit, member.heartbeat):
        with pytest.raises(DeclarationError, match="this member has left"):
            use()
    assert group.members() == {}


def test_a_join_that_fails_leaves_no_member_behind(log: Log, group: Group) -> None:
    topic = log.create_topic("short", "text string", settings=TopicSettings(segment_bytes=2_000, retention_bytes=2_000))
    group.commit("short", {0: 0})
    for _ in range(20):
        topic.append({"text": "x" * 500})
    for start in ("start", "begin"):
        with pytest.raises(PenstockError):
            group.join(["short"], start=start)
    group.reset(group.plan_reset("short", "start"))
    assert drain_texts(group.join("short")) == len(topic.read())


def drain_texts(member: Member) -> int:
    count = 0
    while deliveries := member.poll():
        count += sum(len(delivery.batch) for delivery in deliveries)
    return count


@pytest.mark.parametrize("offsets", [{77: 0}, {0: -5}, {0: 1_000_000_000}])
def test_offsets_that_are_not_there_cannot_be_committed(
    log: Log, group: Group, events: Topic, offsets: dict[int, int]
) -> None:
    with pytest.raises(RangeError):
        group.commit("events", offsets)
    with pytest.raises(RangeError):
        log.transaction().commit_offsets("readers", "events", offsets)
    with pytest.raises(DeclarationError, match="it does not exist"):
        group.commit("nowhere", {0: 0})
    assert log.groups() == []


def test_a_reset_of_one_partition_asks_nothing_of_the_others(log: Log, group: Group) -> None:
    topic = log.create_topic("lines", "n long", partitions=2)
    topic.append([{"n": n} for n in range(5)], partition=1)
    (move,) = group.plan_reset("lines", 3, partitions=[1])
    assert move.target == 3
