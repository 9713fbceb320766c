"""Whatever an app does to its views, readers see what a plain Python model says, at every epoch."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.derive.views import ViewReader, changes
from tests.derive.views.written_app import WrittenApp, WrittenView

# Where syncs are free, if there is such a place: this writes thousands of small files.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
KEYS = st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", None]))
VALUES = st.one_of(st.none(), st.integers(-5, 5))
BAG_ROWS = st.tuples(st.integers(0, 2), st.sampled_from(["x", None]))


@dataclass
class Model:
    """What the views should contain: by key, and as bags."""

    keyed: dict[tuple[int, str | None], int | None] = field(default_factory=dict)
    bag: Counter[tuple[int, str | None]] = field(default_factory=Counter)
    appended: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Epoch:
    """What one epoch does."""

    upserts: dict[tuple[int, str | None], int | None]
    deletes: set[tuple[int, str | None]]
    bag: dict[tuple[int, str | None], int]
    appends: list[int]
    merges: tuple[int, int, int]
    collects: bool
    restores: bool
    refreshes: bool


EPOCHS = st.lists(
    st.builds(
        Epoch,
        upserts=st.dictionaries(KEYS, VALUES, max_size=4),
        deletes=st.sets(KEYS, max_size=3),
        bag=st.dictionaries(BAG_ROWS, st.integers(-3, 4), max_size=3),
        appends=st.lists(st.integers(0, 9), max_size=3),
        merges=st.tuples(*[st.sampled_from([0, 0, 2, 3, 99])] * 3),
        collects=st.booleans(),
        restores=st.sampled_from([False] * 9 + [True]),
        refreshes=st.booleans(),
    ),
    max_size=7,
)


@given(EPOCHS)
def test_every_epoch_is_read_as_it_was_written(epochs: list[Epoch]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        app = new_app(Path(folder) / "apps" / "shop")
        reader = ViewReader(app.directory)
        followers = {name: Counter[Any]() for name in app.views}
        models = {0: Model()}
        model = Model()
        for epoch in epochs:
            before = model
            model = models[apply(app, epoch, model, models)]
            done = app.commit(collect=epoch.collects)
            models[done] = model
            for name, rows in followers.items():
                follow(app, name, rows, done, reset=epoch.restores and done > 1, before=before)
                assert +rows == rows_of(model)[name]
            readers = [ViewReader(app.directory), *([reader] if epoch.refreshes else [])]
            for open_reader in readers:
                check(open_reader, model, done)


def new_app(directory: Path) -> WrittenApp:
    app = WrittenApp(directory, keep=2)
    app.declare(WrittenView("keyed", "id int, tag string, value bigint", ("id", "tag"), "keyed", partitions=2))
    app.declare(WrittenView("bag", "x int, tag string", None, "counted", partitions=2))
    app.declare(WrittenView("appended", "x int", partitions=2))
    return app


def apply(app: WrittenApp, epoch: Epoch, model: Model, models: dict[int, Model]) -> int:
    """Write what an epoch does. Returns the number under which `models` has the model after it."""
    commits = app.ledger.epochs_with("commit")
    if epoch.restores and commits:
        earlier = app.ledger.commit_of(commits[0])
        assert earlier is not None
        app.restore(earlier)
        return earlier.epoch
    after = Model(dict(model.keyed), Counter(model.bag), [*model.appended, *epoch.appends])
    deletes = epoch.deletes - epoch.upserts.keys()
    touched = {**dict.fromkeys(deletes), **epoch.upserts}
    old = [keyed_row(key, model.keyed[key]) for key in touched if key in model.keyed]
    for key in deletes:
        after.keyed.pop(key, None)
    after.keyed.update(epoch.upserts)
    app.upsert(
        "keyed",
        [keyed_row(key, value) for key, value in epoch.upserts.items()],
        [keyed_row(key, None) for key in deletes],
        before=old,
    )
    weights = {row: max(weight, -model.bag[row]) for row, weight in epoch.bag.items()}
    weights = {row: weight for row, weight in weights.items() if weight}
    after.bag.update(weights)
    app.count("bag", [{"x": x, "tag": tag} for x, tag in weights], list(weights.values()))
    app.append("appended", [{"x": x} for x in epoch.appends])
    for name, count in zip(app.views, epoch.merges, strict=True):
        if count:
            app.merge(name, count)
    models[-1] = after
    return -1


def keyed_row(key: tuple[int, str | None], value: int | None) -> dict[str, object]:
    return {"id": key[0], "tag": key[1], "value": value}


def rows_of(model: Model) -> dict[str, Counter[Any]]:
    return {
        "keyed": Counter((*key, value) for key, value in model.keyed.items()),
        "bag": +model.bag,
        "appended": Counter((x,) for x in model.appended),
    }


def check(reader: ViewReader, model: Model, epoch: int) -> None:
    """Everything that can be asked agrees with the model."""
    for name, expected in rows_of(model).items():
        answer = reader.query(f"select * from {name}")
        assert answer.epoch == epoch
        assert Counter(answer) == expected
    total = sum(value or 0 for value in model.keyed.values())
    sql = "select (select count(*) from keyed), (select count(*) from bag), coalesce(sum(value), 0) from keyed"
    assert list(reader.query(sql)) == [(len(model.keyed), model.bag.total(), total)]
    counts = {view.name: view.rows for view in reader.views()}
    assert counts == {"keyed": len(model.keyed), "bag": model.bag.total(), "appended": len(model.appended)}
    for number in range(7):
        for tag in ("a", "b", None):
            expected_row = keyed_row((number, tag), model.keyed[number, tag]) if (number, tag) in model.keyed else None
            assert reader.get("keyed", (number, tag)) == expected_row
            if tag is not None and number < 2:
                found = reader.query("select * from keyed where id = ? and tag = ?", [number, tag]).rows()
                assert found == ([expected_row] if expected_row else [])


def follow(app: WrittenApp, name: str, rows: Counter[Any], epoch: int, *, reset: bool, before: Model) -> None:
    """Apply the changes of one epoch to the rows of a follower, or take all rows if it must start over."""
    from penstock.errors import ChangesLostError

    try:
        (change,) = changes(app.directory, name, after=epoch - 1, timeout=0)
    except ChangesLostError:
        assert reset
        rows.clear()
        rows.update(ViewReader(app.directory).query(f"select * from {name}"))
        return
    assert not reset
    assert change.epoch == epoch
    for row, weight in change.rows():
        rows[tuple(row.values())] += weight
