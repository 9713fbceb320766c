"""Readers follow commits: what is open stays open, what is damaged is never shown, and nothing is ever written."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.views import ViewReader, get, query, views
from penstock.derive.views.snapshot import FilesRemovedError
from penstock.engine.state.run import RunFile
from penstock.errors import DamagedError, DeclarationError
from tests.derive.views.written_app import WrittenApp, WrittenView


def files_of(app: WrittenApp, view: str) -> list[RunFile]:
    return [file for files in app.views[view].runs.values() for file in files]


def test_before_the_first_commit_there_are_no_views(app: WrittenApp) -> None:
    reader = ViewReader(app.directory)
    assert (reader.views(), reader.epoch, reader.commit) == ([], 0, None)
    assert reader.query("select 1 as one").rows() == [{"one": 1}]
    with pytest.raises(DeclarationError, match="there is no view 'totals'; there is none"):
        reader.query("select * from totals")


def test_a_folder_without_an_app_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="there is no app"):
        ViewReader(tmp_path)


def test_what_is_open_stays_open_and_what_is_new_is_marked(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    before = reader.refresh().open("totals")
    assert reader.refresh().open("totals") is before
    shop.append("seen", [{"id": 9}])
    shop.commit()
    assert reader.refresh().open("totals") is before  # this view has not changed
    shop.upsert("totals", [{"country": "AT", "n": 5}])
    shop.commit()
    after = reader.refresh().open("totals")
    kept = [run for partition in before.partitions.values() for run in partition.runs.values()]
    found = [run for partition in after.partitions.values() for run in partition.runs.values()]
    assert all(any(run is open_run for open_run in found) for run in kept)
    assert len(found) == len(kept) + 1


def test_an_app_that_was_started_afresh_in_the_same_folder_is_another_app(shop: WrittenApp) -> None:
    reader = ViewReader(shop.directory)
    assert reader.query("select count(*) as n from totals").rows() == [{"n": 2}]
    shutil.rmtree(shop.directory)
    again = WrittenApp(shop.directory)
    again.declare(WrittenView("totals", "country string, n bigint", ("country",), "keyed"))
    again.commit()
    again.upsert("totals", [{"country": "XX", "n": 1}])
    again.commit()
    assert reader.query("select * from totals").rows() == [{"country": "XX", "n": 1}]


# -- files that are gone or damaged -----------------------------------------------------------------------------------


def test_an_old_snapshot_says_that_its_files_are_gone(app: WrittenApp) -> None:
    small = WrittenApp(app.directory, keep=2)
    small.declare(app.views["totals"])
    small.upsert("totals", [{"country": "DE", "n": 1}])
    small.commit()
    reader = ViewReader(small.directory)
    old = reader.refresh()
    opened = reader.refresh()
    assert opened.query("select n from totals").rows() == [{"n": 1}]
    late = ViewReader(small.directory).refresh()
    for n in range(2, 7):
        small.upsert("totals", [{"country": "DE", "n": n}])
        small.merge("totals", 99)
        small.commit(collect=True)
    assert old.query("select n from totals").rows() == [{"n": 1}]  # open files stay readable
    with pytest.raises(FilesRemovedError, match="take a new snapshot"):
        late.query("select n from totals")
    assert reader.query("select n from totals").rows() == [{"n": 6}]


def test_a_missing_file_of_the_newest_commit_is_damage(shop: WrittenApp) -> None:
    lost = shop.directory / files_of(shop, "totals")[0].path
    lost.unlink()
    for ask in (
        lambda: query(shop.directory, "select * from totals"),
        lambda: get(shop.directory, "totals", "DE"),
        lambda: views(shop.directory),
    ):
        with pytest.raises(DamagedError, match="the file is missing") as caught:
            ask()
        assert str(lost) in caught.value.message
        assert "penstock run --rebuild" in (caught.value.hint or "")
    assert query(shop.directory, "select count(*) as n from bag").rows() == [{"n": 3}]


@given(data=st.data())
def test_a_flipped_bit_is_never_shown_as_data(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    app = WrittenApp(tmp_path_factory.mktemp("log") / "shop")
    app.declare(WrittenView("totals", "country string, n bigint", ("country",), "keyed", partitions=1))
    app.upsert("totals", [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}])
    app.commit()
    path = app.directory / files_of(app, "totals")[0].path
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, 8 * len(content) - 1))
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    for ask in (lambda: query(app.directory, "select * from totals"), lambda: get(app.directory, "totals", "DE")):
        with pytest.raises(DamagedError, match="its checksum is wrong"):
            ask()


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_file_of_another_size_is_damage(shop: WrittenApp, size: int) -> None:
    path = shop.directory / files_of(shop, "seen")[0].path
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedError, match=f"it has {size} bytes instead of|the file is empty|checksum"):
        query(shop.directory, "select * from seen")


def test_rows_taken_away_that_were_not_there_are_damage(shop: WrittenApp) -> None:
    shop.count("bag", [{"x": 2, "tag": None}], [-2])
    shop.commit()
    with pytest.raises(DamagedError, match="more rows were removed than it had"):
        query(shop.directory, "select * from bag")


def test_a_damaged_commit_is_named(shop: WrittenApp) -> None:
    shop.ledger.path_of(2, "commit").write_text("{}")
    with pytest.raises(DamagedError, match="commit of epoch 2 is damaged"):
        query(shop.directory, "select 1")


# -- nothing is written -----------------------------------------------------------------------------------------------

READ = """
import os, sys
from penstock.derive.views import ViewReader, changes
from penstock.derive.views import answer, follow, sql, status
import pyarrow.compute
if os.getuid() == 0:
    os.setuid(65534)  # root may write anything; everything is imported, since nobody may not read this program
reader = ViewReader(sys.argv[1])
print(list(reader.query("select sum(n) as n from totals").rows()), reader.get("totals", "DE")["n"], len(reader.views()))
print(sum(len(change) for change in changes(sys.argv[1], "totals", after=0, timeout=0)))
try:
    open(sys.argv[1] + "/epochs/x", "w")
except PermissionError:
    print("not writable")
"""


def test_a_reader_needs_no_right_to_write_and_leaves_no_trace(shop: WrittenApp) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "shop"
        shutil.copytree(shop.directory, copy)
        paths = [Path(folder), *sorted(Path(folder).rglob("*"))]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = [(path, path.stat().st_mtime_ns) for path in paths]
        shown = subprocess.run([sys.executable, "-c", READ, str(copy)], capture_output=True, text=True, check=False)
        assert (shown.stdout, shown.stderr) == ("[{'n': 13}] 10 3\n6\nnot writable\n", "")
        assert [(path, path.stat().st_mtime_ns) for path in [Path(folder), *sorted(Path(folder).rglob("*"))]] == before
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
