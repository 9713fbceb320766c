from __future__ import annotations

import pytest

from penstock.errors import ConflictError, DeclarationError, FencedError, RowError
from penstock.log import Log, Topic, TopicSettings
from penstock.log import transaction as transaction_module


@pytest.fixture
def one(log: Log) -> Topic:
    return log.create_topic("one", "id long", key="id", partitions=2)


@pytest.fixture
def two(log: Log) -> Topic:
    return log.create_topic("two", "id long", key="id", partitions=2)


def ids(topic: Topic) -> list[int]:
    return sorted(row["id"] for row in topic.read())


def test_nothing_is_visible_before_the_commit_and_everything_after(log: Log, one: Topic, two: Topic) -> None:
    with log.transaction() as transaction:
        transaction.append(one, [{"id": number} for number in range(10)])
        transaction.append(two, {"id": 99})
        assert ids(one) == ids(two) == []
    assert ids(one) == list(range(10))
    assert ids(two) == [99]


def test_a_block_that_raises_stores_nothing(log: Log, one: Topic) -> None:
    def append_and_fail() -> None:
        with log.transaction() as transaction:
            transaction.append(one, {"id": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        append_and_fail()
    assert ids(one) == []


def test_rows_and_offsets_are_committed_together(log: Log, one: Topic, two: Topic) -> None:
    one.append([{"id": number} for number in range(4)])
    member = log.group("copier").join(["one"])
    batches = [delivery.batch for delivery in member.poll()]
    with log.transaction() as transaction:
        for batch in batches:
            transaction.append(two, batch.rows)
        transaction.commit_offsets(member)
    assert ids(two)
    assert log.group("copier").committed("one") == member.positions()["one"]


def test_a_member_that_lost_its_partition_cannot_commit_and_nothing_is_stored(log: Log, one: Topic, two: Topic) -> None:
    one.append({"id": 1})
    member = log.group("copier").join(["one"])
    transaction = log.transaction()
    transaction.append(two, {"id": 1})
    transaction.commit_offsets(member, one, {0: 0, 1: 0})
    member.close()
    with pytest.raises(FencedError, match="belongs to no member"):
        transaction.commit()
    assert ids(two) == []
    two.append({"id": 7})
    assert ids(two) == [7]


def test_a_repeated_sequence_changes_nothing(log: Log, one: Topic) -> None:
    for _ in range(2):
        producer = log.producer("sink")
        transaction = log.transaction(producer, sequence=3)
        transaction.append(one, {"id": 1})
        answers = transaction.commit()
    assert [answer.repeated for answer in answers] == [True]
    assert ids(one) == [1]


def test_a_producer_that_was_replaced_cannot_commit(log: Log, one: Topic) -> None:
    old = log.producer("sink")
    transaction = log.transaction(old, sequence=1)
    transaction.append(one, {"id": 1})
    log.producer("sink")
    with pytest.raises(FencedError):
        transaction.commit()
    assert ids(one) == []


def test_transactions_and_plain_appends_of_a_producer_do_not_disturb_each_other(log: Log, one: Topic) -> None:
    producer = log.producer("sink")
    producer.append(one, {"id": 1}, sequence=10)
    for number in (2, 3):
        with log.transaction(producer) as transaction:
            transaction.append(one, {"id": number})
    assert producer.append(one, {"id": 1}, sequence=10)[0].repeated
    assert ids(one) == [1, 2, 3]


def test_a_conflict_in_one_append_undoes_all(log: Log, one: Topic) -> None:
    accounts = log.create_topic("accounts", "id string", key="id", settings=TopicSettings(versioned=True))
    accounts.append({"id": "a"}, expect=0)
    transaction = log.transaction()
    transaction.append(one, {"id": 1})
    transaction.append(accounts, {"id": "b"}, expect=0)
    transaction.append(accounts, {"id": "a"}, expect=0)
    with pytest.raises(ConflictError):
        transaction.commit()
    assert ids(one) == []
    assert accounts.ends() == {0: 1}
    accounts.append({"id": "b"}, expect=0)
    assert [batch.versions.to_pylist() for batch in accounts.batches() if batch.versions] == [[1], [1]]


def test_a_refused_record_leaves_partitions_as_they_were(log: Log, one: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FencedError("group 'g': somebody else")

    monkeypatch.setattr(transaction_module, "store_offsets", refuse)
    transaction = log.transaction()
    transaction.append(one, [{"id": number} for number in range(10)])
    transaction.commit_offsets("g", one, {0: 0})
    with pytest.raises(FencedError):
        transaction.commit()
    monkeypatch.undo()
    assert ids(one) == []
    one.append({"id": 5})
    assert ids(one) == [5]
    assert all(not verified.problems for verified in one.verify())


def test_the_catalogue_forgets_old_transactions_and_their_rows_stay(
    log: Log, one: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_module, "FORGET_EVERY", 5)
    for number in range(12):
        with log.transaction() as transaction:
            transaction.append(one, {"id": number})
    with log._catalog.look() as connection:
        assert connection.execute("SELECT count(*) FROM transactions").fetchone() == (2,)
    log.close()
    with Log(log.path) as again:
        assert ids(again.topic("one")) == list(range(12))


def test_a_transaction_ends_once(log: Log, one: Topic) -> None:
    transaction = log.transaction()
    transaction.append(one, {"id": 1})
    transaction.commit()
    for use in (transaction.commit, transaction.abort, lambda: transaction.append(one, {"id": 2})):
        with pytest.raises(DeclarationError, match="it has ended"):
            use()


def test_a_transaction_that_grows_too_large_says_to_commit_more_often(
    log: Log, one: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_module, "MOST_TRANSACTION_BYTES", 1_000)
    transaction = log.transaction()
    transaction.append(one, {"id": 1})
    with pytest.raises(RowError) as error:
        transaction.append(one, [{"id": number} for number in range(1_000)])
    assert error.value.hint == "commit more often, or set rows aside with `stage` of a writer"
    transaction.commit()
    assert ids(one) == [1]


def test_a_sequence_needs_a_named_producer(log: Log) -> None:
    with pytest.raises(DeclarationError, match="needs a named producer"):
        log.transaction(sequence=1)


def test_an_empty_transaction_commits_just_its_offsets(log: Log, one: Topic) -> None:
    with log.transaction() as transaction:
        transaction.commit_offsets("g", one, {0: 0, 1: 0})
    assert log.group("g").committed("one") == {0: 0, 1: 0}
