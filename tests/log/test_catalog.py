"""A catalogue that is missing, foreign, older or damaged is refused. A repair rebuilds what it can, and names the rest.

What it is about is what users see: producers, transactions, groups, promises.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DamagedError, DeclarationError, UnavailableError
from penstock.log import Log, TopicSettings, carry_out_repair, plan_repair
from penstock.log.pending_write import Staged
from penstock.log.recovery import Outcome
from penstock.log.writer import PartitionWriter

GOLDEN = Path(__file__).parent / "golden" / "format-1"
WITHOUT_POSITIONS = Path(__file__).parent / "golden" / "catalogue-2"
CATALOG = "catalog.db"
FLIPS = 250
LONG_FLIPS = 5_000


def fill(path: Path, *, more: int = 0) -> None:
    """A log with producers, sequences, transactions, groups and promises."""
    with Log(path) as log:
        if "orders" not in log.topics():
            log.create_topic("orders", "id long, at timestamp", key="id", time="at", settings=TopicSettings(2))
        topic = log.topic("orders")
        for name in ("till", "web", *(f"extra-{number}" for number in range(more))):
            producer = log.producer(name)
            for sequence in range(5 + more):
                producer.append(topic, row(sequence), sequence=sequence)
            producer.promise(topic, f"2026-01-{1 + more:02}T00:00:00Z")
            with log.transaction(producer, sequence=70 + more) as transaction:
                transaction.append(topic, row(100))
        log.writer("till").write([], {"lsn": f"0/{more:08X}"})
        for group in ("report", "search"):
            log.group(group).commit("orders", {0: 3 + more, 1: 2 + more})


def row(number: int) -> list[dict[str, Any]]:
    return [{"id": number + shift, "at": "2026-01-31T12:00:00Z"} for shift in range(4)]


def seen(log: Log) -> dict[str, Any]:
    """All that the catalogue tells."""
    return {
        "producers": log.producers(),
        "transactions": {name: log.last_transaction(name) for name in log.producers().values()},
        "groups": {name: (log.group(name).topics(), log.group(name).committed("orders")) for name in log.groups()},
        "promises": log.promises("orders"),
        "read": log._catalog.group_positions("orders"),
        "positions": {name: log._catalog.writer(producer).position for producer, name in log.producers().items()},
        "rows": len(log.topic("orders").read()),
    }


def ask_everything(log: Log) -> dict[str, Any]:
    found = seen(log)
    assert log._catalog.outcome(12345) is Outcome.UNRECORDED
    return found


@dataclass
class Stored:
    path: Path
    expected: dict[str, Any]

    @property
    def catalog(self) -> Path:
        return self.path / CATALOG


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    fill(tmp_path / "log")
    with Log(tmp_path / "log") as log:
        return Stored(tmp_path / "log", seen(log))


def refused(path: Path) -> str:
    with pytest.raises(DamagedError) as error, Log(path) as log:
        seen(log)
    assert "penstock repair" in str(error.value.hint)
    assert CATALOG in error.value.message
    return error.value.message


# -- recognised -------------------------------------------------------------------------------------------------------


def remove(catalog: Path) -> None:
    catalog.unlink()


def empty(catalog: Path) -> None:
    catalog.write_bytes(b"")


@pytest.mark.parametrize("ruin", [remove, empty])
def test_a_missing_or_empty_catalogue_is_refused_when_the_log_is_opened(
    stored: Stored, ruin: Callable[[Path], None]
) -> None:
    ruin(stored.catalog)
    with pytest.raises(DamagedError, match=r"catalog\.db: the catalogue is (missing|empty)"):
        Log(stored.path)


def test_the_catalogue_of_another_log_is_refused(stored: Stored, tmp_path: Path) -> None:
    fill(tmp_path / "other")
    shutil.copy(tmp_path / "other" / CATALOG, stored.catalog)
    assert "another log" in refused(stored.path)


def test_the_description_of_another_log_is_noticed(stored: Stored, tmp_path: Path) -> None:
    fill(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "penstock.json", stored.path)
    assert "another log" in refused(stored.path)


def test_an_older_copy_is_refused_even_if_it_lacks_one_commit_only(stored: Stored, tmp_path: Path) -> None:
    shutil.copy(stored.catalog, tmp_path / "copy")
    with Log(stored.path) as log:
        log.group("report").commit("orders", {0: 4})
    shutil.copy(tmp_path / "copy", stored.catalog)
    assert "it is an older copy" in refused(stored.path)


def test_an_older_copy_that_came_with_its_mark_gives_no_producer_the_id_of_another(
    stored: Stored, tmp_path: Path
) -> None:
    for name in (CATALOG, "catalog.mark"):
        shutil.copy(stored.path / name, tmp_path)
    with Log(stored.path) as log:
        log.producer("late").append(log.topic("orders"), row(1), sequence=40)
    for name in (CATALOG, "catalog.mark"):
        shutil.copy(tmp_path / name, stored.path)
    with Log(stored.path) as log, pytest.raises(DamagedError, match="producer 3 is 'late' here, and 'another'"):
        log.producer("another")


@pytest.mark.parametrize("ruin", [remove, empty, lambda mark: mark.write_bytes(bytes(32))])
def test_without_its_mark_a_catalogue_is_not_believed(stored: Stored, ruin: Callable[[Path], None]) -> None:
    ruin(stored.path / "catalog.mark")
    assert "catalog.mark" in refused(stored.path)
    carry_out_repair(stored.path, plan_repair(stored.path))
    with Log(stored.path) as log:
        assert seen(log) | {"rows": 0} == stored.expected | {"rows": 0}


def test_a_copy_of_the_whole_log_is_sound(stored: Stored, tmp_path: Path) -> None:
    shutil.copytree(stored.path, tmp_path / "copy")
    fill(stored.path, more=3)
    with Log(tmp_path / "copy") as log:
        assert seen(log) == stored.expected


def test_a_catalogue_that_is_replaced_under_an_open_log_is_noticed(stored: Stored, tmp_path: Path) -> None:
    shutil.copy(stored.catalog, tmp_path / "copy")
    with Log(stored.path) as log:
        seen(log)
        (tmp_path / "copy").rename(stored.catalog)
        for act in (log.producers, lambda: log.group("report").commit("orders", {0: 1})):
            with pytest.raises(UnavailableError, match="removed or replaced"):
                act()


def test_what_reads_rows_only_does_not_need_the_catalogue(stored: Stored) -> None:
    with closing(sqlite3.connect(stored.catalog)) as connection:
        connection.execute("UPDATE meta SET log = 'x'")
        connection.commit()
    with Log(stored.path) as log:
        assert len(log.topic("orders").read()) == stored.expected["rows"]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM offsets WHERE partition = 1",
        "UPDATE offsets SET next_offset = 22 WHERE partition = 0",
        "UPDATE producers SET sequence = 69",
        "DELETE FROM transactions",
        "DROP TABLE promises",
        "DROP TRIGGER offsets_insert",
        "DELETE FROM meta",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 7",
        "CREATE INDEX i ON offsets (topic)",
        "INSERT INTO offsets SELECT 'new', topic, partition, next_offset, crc FROM offsets WHERE group_name = 'search'",
    ],
)
def test_what_was_changed_behind_the_back_of_the_log_is_damage(stored: Stored, change: str) -> None:
    with closing(sqlite3.connect(stored.catalog)) as connection:
        # As if the bytes had changed: what triggers make of it is taken back.
        connection.executescript(f"CREATE TEMP TABLE kept AS SELECT * FROM totals; {change}")
        connection.executescript("DELETE FROM totals; INSERT INTO totals SELECT * FROM kept")
    with pytest.raises(DamagedError, match=r"catalog\.db"), Log(stored.path) as log:
        ask_everything(log)


# -- one flipped bit --------------------------------------------------------------------------------------------------


def check_flips(stored: Stored, seeds: range) -> None:
    files = {path: path.read_bytes() for path in (stored.catalog, stored.path / "catalog.mark")}
    before = {path.name for path in stored.path.iterdir()}
    for seed in seeds:
        rng = random.Random(seed)
        path = rng.choices(list(files), [9, 1])[0]
        damaged = bytearray(files[path])
        bit = rng.choice([rng.randrange(8 * 100), rng.randrange(8 * len(damaged))]) % (8 * len(damaged))
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            with Log(stored.path) as log:
                found = ask_everything(log)
            assert found == stored.expected, f"seed {seed}: byte {bit // 8} of {path.name} changed what is read"
        except (DamagedError, UnavailableError) as error:
            named = path.name in error.message
            assert named, f"seed {seed}: {error}"  # noqa: PT017
        finally:
            for name in {one.name for one in stored.path.iterdir()} - before:
                (stored.path / name).unlink()
            for restored, content in files.items():
                restored.write_bytes(content)


def test_a_flipped_bit_never_changes_what_the_catalogue_tells(stored: Stored) -> None:
    check_flips(stored, range(FLIPS))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_five_thousand_flipped_bits_never_change_what_the_catalogue_tells(stored: Stored) -> None:
    check_flips(stored, range(FLIPS, FLIPS + LONG_FLIPS))


# -- repaired ---------------------------------------------------------------------------------------------------------


def test_a_sound_catalogue_needs_no_repair(stored: Stored) -> None:
    assert plan_repair(stored.path).problem is None


def test_after_a_lost_catalogue_producers_go_on_and_the_rest_is_named(stored: Stored) -> None:
    stored.catalog.unlink()
    repair = plan_repair(stored.path)
    assert not stored.catalog.exists(), "a plan changes nothing"
    assert "missing" in str(repair.problem)
    assert any("all groups" in line for line in repair.lost)
    assert sum("the sequence of its last transaction" in line for line in repair.lost) == 2
    carry_out_repair(stored.path, repair)
    with Log(stored.path) as log:
        topic = log.topic("orders")
        before = len(topic.read())
        assert before == stored.expected["rows"]
        assert all(one.repeated for one in log.producer("till").append(topic, row(4), sequence=4))
        (new,) = {log.producer("new").id}
        assert new == 3
        assert not any(one.repeated for one in log.producer("new").append(topic, row(4), sequence=4))
        assert len(topic.read()) == before + 4
    assert plan_repair(stored.path).problem is None


def test_a_producer_of_an_earlier_epoch_stays_refused_after_a_repair(stored: Stored) -> None:
    with Log(stored.path) as log:
        epoch = max(log.producer("till").epoch for _ in range(5))
    stored.catalog.unlink()
    carry_out_repair(stored.path, plan_repair(stored.path))
    with Log(stored.path) as log:
        assert log.producer("till").epoch > epoch


def test_an_older_copy_is_taken_for_what_it_still_knows(stored: Stored, tmp_path: Path) -> None:
    shutil.copy(stored.catalog, tmp_path / "copy")
    fill(stored.path, more=2)
    shutil.copy(tmp_path / "copy", stored.catalog)
    repair = plan_repair(stored.path)
    assert any("group 'report': commits in topic 'orders' partition 0 after offset 3" in line for line in repair.lost)
    assert any("producer 'till': transactions after sequence 70" in line for line in repair.lost)
    carry_out_repair(stored.path, repair)
    with Log(stored.path) as log:
        assert log.group("report").committed("orders") == {0: 3, 1: 2}
        assert log.producers() == {1: "till", 2: "web", 3: "extra-0", 4: "extra-1"}
        assert all(one.repeated for one in log.producer("extra-1").append(log.topic("orders"), row(6), sequence=6))


def test_the_copy_before_a_repair_is_older_after_it(stored: Stored, tmp_path: Path) -> None:
    shutil.copy(stored.catalog, tmp_path / "copy")
    stored.catalog.unlink()
    carry_out_repair(stored.path, plan_repair(stored.path))
    shutil.copy(tmp_path / "copy", stored.catalog)
    assert "it is an older copy" in refused(stored.path)


def test_sound_rows_of_a_damaged_catalogue_are_kept_and_the_others_counted(stored: Stored) -> None:
    with closing(sqlite3.connect(stored.catalog)) as connection:
        connection.execute("UPDATE offsets SET next_offset = 22 WHERE group_name = 'search' AND partition = 0")
        connection.commit()
    repair = plan_repair(stored.path)
    assert "1 rows of offsets" in repair.lost
    carry_out_repair(stored.path, repair)
    with Log(stored.path) as log:
        assert seen(log)["groups"] == stored.expected["groups"] | {"search": (["orders"], {1: 2})}
        assert log.producers() == stored.expected["producers"]


def test_a_foreign_catalogue_gives_nothing(stored: Stored, tmp_path: Path) -> None:
    fill(tmp_path / "other", more=4)
    shutil.copy(tmp_path / "other" / CATALOG, stored.catalog)
    carry_out_repair(stored.path, plan_repair(stored.path))
    with Log(stored.path) as log:
        assert log.producers() == {1: "till", 2: "web"}
        assert log.groups() == []


@pytest.mark.parametrize("pending", ["keep", "cut"])
def test_rows_of_an_undecided_transaction_are_named_and_decided_by_the_user(
    stored: Stored, pending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with Log(stored.path) as log, monkeypatch.context() as patch:
        patch.setattr("penstock.log.writer.PartitionWriter.publish", die)
        transaction = log.transaction()
        transaction.append(log.topic("orders"), row(200))
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    stored.catalog.unlink()
    repair = plan_repair(stored.path)
    assert {(one.topic, one.partition) for one in repair.undecided} == {("orders", 0), ("orders", 1)}
    with pytest.raises(DeclarationError, match="not known whether they were committed"):
        carry_out_repair(stored.path, repair)
    carry_out_repair(stored.path, repair, pending=pending)
    with Log(stored.path) as log:
        topic = log.topic("orders")
        assert len(topic.read()) == stored.expected["rows"] + (4 if pending == "keep" else 0)
        topic.append(row(300))
        assert len(topic.read()) == stored.expected["rows"] + (8 if pending == "keep" else 4)


def test_a_transaction_that_is_visible_somewhere_is_committed_everywhere(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PartitionWriter.publish

    def die_at_the_second(writer: PartitionWriter, staged: Staged) -> None:
        if writer.partition.number == 1:
            raise KeyboardInterrupt
        publish(writer, staged)

    with Log(stored.path) as log, monkeypatch.context() as patch:
        patch.setattr("penstock.log.writer.PartitionWriter.publish", die_at_the_second)
        transaction = log.transaction()
        transaction.append(log.topic("orders"), row(200))
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    stored.catalog.unlink()
    repair = plan_repair(stored.path)
    assert repair.undecided == ()
    carry_out_repair(stored.path, repair)
    with Log(stored.path) as log:
        assert len(log.topic("orders").read()) == stored.expected["rows"] + 4


# -- of an earlier version --------------------------------------------------------------------------------------------


def test_a_log_of_an_earlier_version_is_brought_up_to_date_once(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "log")
    with Log(tmp_path / "log") as log:
        before = log.producers(), log.group("copier").committed("everything"), log.last_transaction("feed")
    assert before == ({1: "feed"}, {0: 3, 1: 4}, 7)
    with Log(tmp_path / "log") as log:
        assert (log.producers(), log.group("copier").committed("everything"), log.last_transaction("feed")) == before
        assert log.producer("feed").id == 1
    shutil.copy(GOLDEN / CATALOG, tmp_path / "log")
    with pytest.raises(DamagedError, match=r"catalog\.db"), Log(tmp_path / "log") as log:
        log.producers()


def test_a_log_of_an_earlier_version_without_its_catalogue_is_refused_and_repaired(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "log")
    (tmp_path / "log" / CATALOG).unlink()
    with pytest.raises(DamagedError, match=r"catalog\.db: the catalogue is missing"):
        Log(tmp_path / "log")
    repair = plan_repair(tmp_path / "log")
    assert any("producer 1: its name" in line for line in repair.lost)
    carry_out_repair(tmp_path / "log", repair)
    with Log(tmp_path / "log") as log:
        assert log.producers() == {1: "#1"}
        assert log.producer("feed").id == 2


@pytest.mark.parametrize(
    ("golden", "stop"),
    [
        (GOLDEN, "store_identity"),
        (GOLDEN, "store_mark"),
        (GOLDEN, "_fill"),
        (WITHOUT_POSITIONS, "add_tables"),
        (WITHOUT_POSITIONS, "store_identity"),
    ],
)
def test_an_interrupted_update_of_an_earlier_version_is_finished_by_the_next(
    tmp_path: Path, golden: Path, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    shutil.copytree(golden, tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(f"penstock.log.catalog.{stop}", die)
        with pytest.raises(KeyboardInterrupt), Log(tmp_path / "log") as log:
            log.producers()
    with Log(tmp_path / "log") as log:
        assert log.producers() == {1: "feed"}
        assert log.group("copier").committed("everything") == {0: 3, 1: 4}


def test_a_catalogue_without_positions_gets_them_once_and_is_not_believed_in_its_old_form_afterwards(
    tmp_path: Path,
) -> None:
    shutil.copytree(WITHOUT_POSITIONS, tmp_path / "log")
    assert plan_repair(tmp_path / "log").problem is None
    with Log(tmp_path / "log") as log:
        assert (log.producers(), log.last_transaction("feed")) == ({1: "feed"}, 7)
        writer = log.writer("feed")
        assert (writer.position, writer.write([], 1)) == (None, True)
    assert plan_repair(tmp_path / "log").problem is None
    shutil.copy(WITHOUT_POSITIONS / CATALOG, tmp_path / "log")
    assert "catalog.db" in refused_producers(tmp_path / "log")


@pytest.mark.parametrize("change", ["UPDATE producers SET sequence = 8", "DELETE FROM offsets", "DROP TABLE promises"])
def test_a_damaged_catalogue_of_an_earlier_version_is_refused_and_not_brought_up_to_date(
    tmp_path: Path, change: str
) -> None:
    shutil.copytree(WITHOUT_POSITIONS, tmp_path / "log")
    with closing(sqlite3.connect(tmp_path / "log" / CATALOG)) as connection:
        connection.executescript(f"CREATE TEMP TABLE kept AS SELECT * FROM totals; {change}")
        connection.executescript("DELETE FROM totals; INSERT INTO totals SELECT * FROM kept")
    for _ in range(2):
        assert "the catalogue is damaged" in refused_producers(tmp_path / "log")
    repair = plan_repair(tmp_path / "log")
    assert not any("positions" in line for line in repair.lost)
    carry_out_repair(tmp_path / "log", repair)
    with Log(tmp_path / "log") as log:
        assert log.writer("new").write([], 1) is True


def refused_producers(path: Path) -> str:
    with pytest.raises(DamagedError) as error, Log(path) as log:
        log.producers()
    return error.value.message


def test_what_is_checked_is_of_one_moment_while_another_process_commits(tmp_path: Path) -> None:
    with Log(tmp_path) as log, Log(tmp_path) as busy:
        topic = busy.create_topic("orders", "id long")
        producer = busy.producer("shop")
        with busy.transaction(producer) as transaction:
            transaction.append(topic, [{"id": 0}])

        def commit_between(statement: str) -> None:
            """Another process commits after the rows were counted, and before what they must add up to is read."""
            if "FROM totals" in statement and not committed:
                committed.append(statement)
                with busy.transaction(producer) as another:
                    another.append(topic, [{"id": 1}])

        committed: list[str] = []
        with log._catalog.look() as connection:
            connection.set_trace_callback(commit_between)
        assert log._catalog.outcome(1_000_000) is Outcome.UNRECORDED
        connection.set_trace_callback(None)
        assert committed
        assert len(topic.read()) == 2
