"""With commands only: a delete reaches an app that was stopped or restored while its topic was compacted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from penstock import Log

pytestmark = pytest.mark.usefixtures("spark", "restored_process")

Run = Callable[..., Result]

SHOP = """
from penstock import App, AppSettings

app = App("shop", settings=AppSettings(state_partitions=2))
people = app.table("people", schema="id long not null, city string", key="id")
app.view("residents", people)
app.sink("copies", people)
"""


class Shop:
    """An app that keeps people in a view and in a topic, driven by commands."""

    def __init__(self, run: Run, folder: Path, program: Path) -> None:
        self._run = run
        self._folder = folder
        self._program = program
        program.write_text(SHOP)

    def command(self, *words: str, stdin: str | None = None) -> str:
        done = self._run(*words, stdin=stdin)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def start(self, *options: str) -> None:
        """Process everything in the log, then stop."""
        self.command("run", str(self._program), "--once", "--log", str(self._folder), *options)

    def produce(self, *ids: int) -> None:
        rows = "".join(json.dumps({"id": id_, "city": "Rome"}) + "\n" for id_ in ids)
        self.command("produce", "people", stdin=rows)

    def delete(self, *ids: int) -> None:
        self.command("produce", "people", "--delete", stdin="".join(f'{{"id": {id_}}}\n' for id_ in ids))

    def residents(self) -> list[int]:
        document = json.loads(self.command("query", "select id from residents order by id", "--json"))
        return [row["id"] for row in document["rows"]]

    def copies(self) -> list[int]:
        """The ids that the topic of the sink ends up with."""
        found = set[int]()
        with Log(self._folder) as log:
            for batch in log.topic("copies").batches():
                marks = [False] * len(batch) if batch.deleted is None else batch.deleted.to_pylist()
                for id_, gone in zip(batch.rows.column("id").to_pylist(), marks, strict=True):
                    found.discard(id_) if gone else found.add(id_)
        return sorted(found)


@pytest.fixture
def shop(run: Run, folder: Path, tmp_path: Path) -> Shop:
    shop = Shop(run, folder, tmp_path / "shop.py")
    shop.start()
    shop.produce(1, 2)
    shop.start()
    return shop


def test_a_delete_reaches_the_view_and_the_sink_of_an_app_that_was_stopped(shop: Shop) -> None:
    shop.delete(1)
    assert "1 delete marker left, not read yet by app:shop; see `penstock holds`" in shop.command("compact", "people")
    shop.start()
    assert shop.residents() == shop.copies() == [2]
    assert "delete marker" not in shop.command("compact", "people")
    assert json.loads(shop.command("stats", "people", "--json"))["topics"][0]["partitions"][0]["rows"] == 1


def test_a_delete_reaches_an_app_that_goes_back_to_a_savepoint_from_before_it(shop: Shop) -> None:
    shop.command("savepoint", "create", "before")
    shop.delete(1)
    shop.start()
    assert "not read yet by savepoint:shop:before" in shop.command("compact", "people")
    shop.command("savepoint", "restore", "before", "--yes")
    assert shop.residents() == [1, 2]
    shop.start()
    assert shop.residents() == shop.copies() == [2]
    shop.command("savepoint", "drop", "before", "--yes")
    assert "delete marker" not in shop.command("compact", "people")


def test_a_forgotten_app_keeps_nothing_and_builds_its_views_again(run: Run, shop: Shop, tmp_path: Path) -> None:
    shop.delete(1)
    assert shop.command("holds", "release", "app:shop", "--yes") == "released 'app:shop'\n"
    assert "delete marker" not in shop.command("compact", "people")
    refused = run("run", str(tmp_path / "shop.py"), "--once", "--log", str(tmp_path / "log"))
    assert refused.exit_code == 1
    assert "app 'shop': it was forgotten with `penstock holds release`" in refused.stderr
    assert "penstock run --rebuild" in refused.stderr
    shop.command("topic", "drop", "copies", "--yes")
    shop.start("--rebuild")
    assert shop.residents() == shop.copies() == [2]
