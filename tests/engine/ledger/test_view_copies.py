"""Copies of the view store: taken and put back at one moment, under the eyes of readers and writers."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.contracts import ViewChanges, ViewTable
from penstock.derive.store import ViewStore
from penstock.engine.ledger.view_copies import RESTORING_NAME, StoredViews
from penstock.errors import DamagedError, DeclarationError, FencedError, UnavailableError

SCHEMA = pa.schema([("country", pa.string()), ("orders", pa.int64())])
TABLE = ViewTable("by_country", SCHEMA, ("country",))
COUNTRIES = [f"country {number}" for number in range(500)]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The folder of an app with a folder for savepoints."""
    (tmp_path / "shop" / "savepoints").mkdir(parents=True)
    return tmp_path / "shop"


@pytest.fixture
def store(app: Path) -> Iterator[ViewStore]:
    """The app's store, taken over by instance 1; every view shows the number of its epoch in every row."""
    with ViewStore(app / "views.sqlite") as opened:
        opened.take_over("shop", 1)
        opened.declare([TABLE])
        yield opened


def apply(store: ViewStore, epoch: int, token: int = 1) -> None:
    batch = pa.record_batch([COUNTRIES, [epoch] * len(COUNTRIES)], schema=SCHEMA)
    weights = pa.array([1] * len(COUNTRIES), pa.int64())
    store.apply(epoch, token, {"by_country": [ViewChanges(batch, weights)]})


def shown(path: Path) -> tuple[int, int, set[int]]:
    """The epoch, the token, and what the rows say."""
    with closing(sqlite3.connect(path)) as connection:
        epoch, token = connection.execute("SELECT epoch, token FROM penstock_epochs").fetchone()
        rows = connection.execute("SELECT orders FROM by_country").fetchall()
    return epoch, token, {orders for (orders,) in rows}


def test_a_copy_is_one_file_with_the_views_of_one_epoch(app: Path, store: ViewStore) -> None:
    apply(store, 1)
    apply(store, 2)
    copy = app / "savepoints" / "good.views.sqlite"
    assert StoredViews(app, "shop").copy_out(copy) == 2
    apply(store, 3)
    assert shown(copy) == (2, 1, {2})
    assert [path.name for path in (app / "savepoints").iterdir()] == ["good.views.sqlite"]


def test_what_a_crash_has_left_of_a_copy_is_replaced(app: Path, store: ViewStore) -> None:
    apply(store, 1)
    copy = app / "savepoints" / "good.views.sqlite"
    copy.write_bytes(b"half a copy")
    copy.with_name("good.views.sqlite-journal").write_bytes(b"half a journal")
    assert StoredViews(app, "shop").copy_out(copy) == 1
    assert shown(copy) == (1, 1, {1})


def test_an_app_without_a_store_has_no_epoch_and_no_copy(app: Path) -> None:
    views = StoredViews(app, "shop")
    assert views.epoch() is None
    assert views.copy_out(app / "savepoints" / "good.views.sqlite") is None
    assert list((app / "savepoints").iterdir()) == []
    assert not (app / "views.sqlite").exists()


def test_views_are_put_back_under_a_new_epoch_and_the_old_instance_is_refused(app: Path, store: ViewStore) -> None:
    copy = app / "savepoints" / "good.views.sqlite"
    views = StoredViews(app, "shop")
    apply(store, 1)
    views.copy_out(copy)
    apply(store, 2)
    for _ in range(2):
        views.put_back(copy, epoch=3, token=2)
        assert shown(app / "views.sqlite") == (3, 2, {1})
    assert views.epoch() == 3
    with pytest.raises(FencedError, match="instance 1 was replaced by instance 2"):
        apply(store, 4)
    with ViewStore(app / "views.sqlite") as third:
        assert third.take_over("shop", 3) == 3
        apply(third, 4, token=3)
    assert shown(app / "views.sqlite") == (4, 3, {4})
    assert shown(copy) == (1, 1, {1})
    assert not (app / "savepoints" / RESTORING_NAME).exists()


def test_a_reader_keeps_what_it_began_to_read_while_views_are_put_back(app: Path, store: ViewStore) -> None:
    copy = app / "savepoints" / "good.views.sqlite"
    views = StoredViews(app, "shop")
    apply(store, 1)
    views.copy_out(copy)
    apply(store, 2)
    with closing(sqlite3.connect(app / "views.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT DISTINCT orders FROM by_country").fetchall() == [(2,)]
        views.put_back(copy, epoch=3, token=2)
        assert reader.execute("SELECT epoch FROM penstock_epochs").fetchone() == (2,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT DISTINCT orders FROM by_country").fetchall() == [(1,)]


def test_a_lost_store_comes_back_with_the_savepoint(app: Path, store: ViewStore) -> None:
    copy = app / "savepoints" / "good.views.sqlite"
    apply(store, 1)
    StoredViews(app, "shop").copy_out(copy)
    store.close()
    for path in app.glob("views.sqlite*"):
        path.unlink()
    StoredViews(app, "shop").put_back(copy, epoch=2, token=2)
    assert shown(app / "views.sqlite") == (2, 2, {1})
    with ViewStore(app / "views.sqlite") as again:
        assert again.take_over("shop", 3) == 2


def test_a_store_that_stays_locked_is_told_and_left_as_it_was(
    app: Path, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.ledger.view_copies.BUSY_SECONDS", 0.05)
    copy = app / "savepoints" / "good.views.sqlite"
    apply(store, 1)
    StoredViews(app, "shop").copy_out(copy)
    apply(store, 2)
    with closing(sqlite3.connect(app / "views.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="locked"):
            StoredViews(app, "shop").put_back(copy, epoch=3, token=2)
        other.execute("ROLLBACK")
    assert shown(app / "views.sqlite") == (2, 1, {2})


def test_the_views_of_another_app_are_not_put_back(app: Path, store: ViewStore) -> None:
    copy = app / "savepoints" / "good.views.sqlite"
    apply(store, 1)
    StoredViews(app, "shop").copy_out(copy)
    with pytest.raises(DeclarationError, match="the savepoint holds the views of another app"):
        StoredViews(app, "bank").put_back(copy, epoch=3, token=2)
    assert shown(app / "views.sqlite") == (1, 1, {1})


def test_a_damaged_store_is_told(app: Path) -> None:
    (app / "views.sqlite").write_bytes(b"this is no database, however long it may be" * 100)
    with pytest.raises(DamagedError, match="damaged"):
        StoredViews(app, "shop").copy_out(app / "savepoints" / "good.views.sqlite")


# Puts the views back, again and again, until it is killed.
PUT_BACK = """
import sys
from pathlib import Path
from penstock.engine.ledger.view_copies import StoredViews
app, copies = Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]]
print("ready", flush=True)
epoch = 100
while True:
    epoch += 1
    StoredViews(app, "shop").put_back(copies[epoch % 2], epoch=epoch, token=epoch)
"""


def test_after_a_kill_while_views_are_put_back_they_belong_together(app: Path, store: ViewStore) -> None:
    copies = [app / "savepoints" / f"{name}.views.sqlite" for name in ("even", "odd")]
    for epoch, copy in enumerate(copies, 1):
        apply(store, epoch)
        StoredViews(app, "shop").copy_out(copy)
    store.close()
    program = [sys.executable, "-c", PUT_BACK, str(app), *map(str, copies)]
    reached = 0
    for _ in range(8):
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            start = shown(app / "views.sqlite")[0]
            while shown(app / "views.sqlite")[0] in (start, 101, 102):
                assert process.poll() is None
            process.kill()
        epoch, token, rows = shown(app / "views.sqlite")
        assert epoch == token
        assert rows == {1 + epoch % 2}
        reached = max(reached, epoch)
    assert reached > 102
