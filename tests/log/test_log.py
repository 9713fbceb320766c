from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from penstock.errors import DeclarationError, PenstockError
from penstock.log import Log, Topic, TopicSettings
from penstock.storage import document
from penstock.storage.document import store_document
from penstock.storage.files import Disk


def test_a_topic_is_there_after_reopening(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", "id long", key="id", partitions=2)
    with Log(tmp_path / "log") as log:
        assert log.topics() == ["orders"]
        assert log.topic("orders").settings.partitions == 2


def test_an_unknown_topic_is_named_with_the_closest_known_one(log: Log) -> None:
    log.create_topic("orders", "id long")
    with pytest.raises(DeclarationError) as error:
        log.topic("order")
    assert "topic 'order': it does not exist" in error.value.message
    assert error.value.hint == "did you mean 'orders'?"


def test_an_unknown_topic_in_an_empty_log_says_how_to_create_one(log: Log) -> None:
    with pytest.raises(DeclarationError) as error:
        log.topic("orders")
    assert "penstock topic create" in str(error.value.hint)


def test_a_topic_cannot_be_created_twice(log: Log) -> None:
    log.create_topic("orders", "id long")
    with pytest.raises(DeclarationError, match="it exists already"):
        log.create_topic("orders", "id long")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/etc", ".hidden", "a b", "x" * 201, "a\x00b", "ä", "-x"])
def test_names_that_could_lead_out_of_the_log_are_refused(log: Log, name: str) -> None:
    for use in (lambda: log.create_topic(name, "id long"), lambda: log.topic(name)):
        with pytest.raises(DeclarationError):
            use()
    for use in (log.producer, log.group):
        with pytest.raises(DeclarationError):
            use(name)
    assert log.topics() == []


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("id long", {"key": "idd"}, "there is no column 'idd'; it has id"),
        ("id double", {"key": "id"}, "cannot be a key"),
        ("id long", {"time": "id"}, "must be a timestamp"),
        ("id long", {"partitions": 0}, "cannot have 0 partitions"),
        ("id long", {"settings": TopicSettings(durability="maybe")}, "durability 'maybe' does not exist"),
        ("id long", {"settings": TopicSettings(versioned=True)}, "versions are counted per key"),
        (
            "id long",
            {"key": "id", "settings": TopicSettings(versioned=True, retention_bytes=1)},
            "cannot have retention",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_and_leaves_nothing(
    log: Log, schema: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        log.create_topic("orders", schema, **options)
    assert log.topics() == []
    assert list((log.path / "topics").iterdir()) == []


def test_a_dropped_topic_is_gone_with_its_groups_offsets(log: Log) -> None:
    topic = log.create_topic("orders", "id long", key="id")
    topic.append([{"id": 1}])
    log.group("readers").commit("orders", {0: 1})
    log.drop_topic("orders")
    assert log.topics() == []
    assert log.group("readers").topics() == []
    assert log.create_topic("orders", "id long").ends() == {0: 0}


def test_appending_to_a_topic_that_another_log_object_dropped_is_refused(log: Log) -> None:
    topic = log.create_topic("orders", "id long", key="id")
    topic.append([{"id": 1}])
    with Log(log.path) as other:
        other.drop_topic("orders")
    with pytest.raises(DeclarationError, match="the topic was dropped"):
        topic.append([{"id": 2}])


def test_a_folder_that_holds_something_else_is_not_taken_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DeclarationError, match="this is not a log, and not empty"):
        Log(tmp_path)


def test_opening_without_creating_says_that_there_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="there is no log"):
        Log(tmp_path / "log", create=False)


@pytest.mark.parametrize("file", ["penstock.json", "topics/orders/topic.json"])
def test_a_log_of_another_format_is_refused_with_both_numbers(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", "id long")
    monkeypatch.setattr(document, "FORMAT", 99)
    path = tmp_path / "log" / file
    store_document(Disk(), path, json.loads(path.read_text())["content"] | {"format": 99})
    monkeypatch.undo()
    with (
        pytest.raises(DeclarationError, match=r"has format 99; this version of Penstock reads format 1"),
        Log(tmp_path / "log") as log,
    ):
        log.topic("orders")


def test_a_closed_log_says_so(log: Log) -> None:
    topic, producer = log.create_topic("orders", "id long"), log.producer("p")
    log.close()
    for use in (
        lambda: topic.append({"id": 1}),
        lambda: producer.append(topic, {"id": 1}),
        lambda: log.group("g").topics(),
    ):
        with pytest.raises(DeclarationError, match="is closed"):
            use()


def _use_in_a_fork(log: Log, answers: multiprocessing.connection.Connection) -> None:  # type: ignore[name-defined]
    try:
        log.topic("orders")
        answers.send("worked")
    except PenstockError as error:
        answers.send(error.message)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_log_cannot_be_used_in_a_fork_of_its_process(log: Log) -> None:
    log.create_topic("orders", "id long")
    context = multiprocessing.get_context("fork")
    answers, sender = context.Pipe(duplex=False)
    process = context.Process(target=_use_in_a_fork, args=(log, sender))
    process.start()
    assert f"was opened by process {os.getpid()}" in answers.recv()
    process.join()


def _append_in_a_fork(topic: Topic, answers: multiprocessing.connection.Connection) -> None:  # type: ignore[name-defined]
    try:
        topic.append({"id": 2})
        answers.send("stored")
    except PenstockError as error:
        answers.send(error.message)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_topic_opened_before_a_fork_takes_no_rows_in_it(log: Log) -> None:
    """Parent and child would share the lock, and each would cut what the other has written."""
    topic = log.create_topic("orders", "id long")
    topic.append({"id": 1})
    context = multiprocessing.get_context("fork")
    answers, sender = context.Pipe(duplex=False)
    process = context.Process(target=_append_in_a_fork, args=(topic, sender))
    process.start()
    assert "cannot be used in a fork" in answers.recv()
    process.join()
    topic.append({"id": 3})
    assert topic.read().to_arrow().column("id").to_pylist() == [1, 3]


def test_a_log_leaves_its_groups_when_it_is_closed(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", "id long").append([{"id": 1}])
        log.group("readers").join("orders")
    with Log(tmp_path / "log") as log:
        assert log.group("readers").members() == {}
        with log.group("readers").join("orders") as member:
            assert len(member.poll()) == 1


def test_a_file_is_not_taken_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for create in (True, False):
        with pytest.raises(DeclarationError, match="this is a file; a log is a folder"):
            Log(tmp_path / "file", create=create)
