"""Readers in processes of their own, while an app commits, merges and removes: every answer is one committed epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.derive.views.written_app import WrittenApp, WrittenView

KEYS = 40
EPOCHS = 60

# Each epoch adds 1 to the sum of both views, in one key or another, so the sum shows the epoch.
READER = """
import json, sys
from penstock.derive.views import ViewReader
kept = ViewReader(sys.argv[1])
print("ready", flush=True)
sql = "select sum(n) as keyed, (select count(*) from bag) as bag, (select count(*) from grown) as grown from keyed"
answers, epoch = 0, 0
while epoch < int(sys.argv[2]):
    for reader in (kept, ViewReader(sys.argv[1])):
        with reader.query(sql) as answer:
            row = answer.rows()[0]
            assert answer.epoch >= epoch, (answer.epoch, epoch)
            epoch = answer.epoch
            assert row == {"keyed": epoch, "bag": epoch, "grown": epoch}, (epoch, row)
            answers += 1
    snapshot = kept.refresh()
    total = kept.with_newest(lambda s: (s.epoch, sum((s.get("keyed", key) or {"n": 0})["n"] for key in range(40))))
    assert total[0] == total[1], total
    counts = kept.with_newest(lambda s: (s.epoch, {view.name: view.rows for view in s.views()}))
    assert counts[1]["bag"] == counts[1]["grown"] == counts[0], counts
print(json.dumps({"answers": answers}))
"""
FOLLOWER = """
import json, sys
from penstock.derive.views import changes
total, epochs = 0, []
for change in changes(sys.argv[1], "keyed", after=0, timeout=60):
    epochs.append(change.epoch)
    total += sum(row["n"] * weight for row, weight in change.rows())
    assert total == change.epoch, (total, change.epoch)
    if change.epoch == int(sys.argv[2]):
        break
print(json.dumps({"epochs": epochs}))
"""


def test_every_answer_is_the_state_after_a_committed_epoch(tmp_path: Path) -> None:
    app = WrittenApp(tmp_path / "shop", keep=2)
    app.declare(WrittenView("keyed", "id int, n bigint", ("id",), "keyed"))
    app.declare(WrittenView("bag", "tag string", None, "counted"))
    app.declare(WrittenView("grown", "x bigint"))
    values: dict[int, int] = {}
    advance(app, values)
    readers = [start(READER, app), start(READER, app)]
    follower = start(FOLLOWER, app)
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    while app.epoch <= EPOCHS:
        advance(app, values)
    for process in [*readers, follower]:
        output, errors = process.communicate(timeout=120)
        assert errors == ""
        document = json.loads(output.splitlines()[-1])
        assert document.get("answers", 1) >= 1
        assert document.get("epochs", list(range(1, EPOCHS + 1))) == list(range(1, EPOCHS + 1))


def start(program: str, app: WrittenApp) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(app.directory), str(EPOCHS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def advance(app: WrittenApp, values: dict[int, int]) -> None:
    """Write and commit an epoch, merge runs now and then, and remove what only older commits name."""
    epoch = app.epoch
    key = epoch * 7 % KEYS
    before = [{"id": key, "n": values[key]}] if key in values else []
    values[key] = values.get(key, 0) + 1
    app.upsert("keyed", [{"id": key, "n": values[key]}], before=before)
    weights = {"a": 2, "b": -1} if epoch % 2 == 0 else {"a": -1, "b": 2}
    if epoch == 1:
        weights = {"b": 1}
    app.count("bag", [{"tag": tag} for tag in weights], list(weights.values()))
    app.append("grown", [{"x": epoch}])
    for name in app.views:
        app.merge(name, 99 if epoch % 5 == 0 else 2 + epoch % 2)
    app.commit(collect=True)
