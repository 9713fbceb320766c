"""One more column in the declaration of a topic rebuilds the views that use it, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.ledger.ledger import Ledger
from penstock.engine.ledger.records import Commit, TrackRecord, Versions
from penstock.engine.plan.cut import Cut
from penstock.engine.resume.decide import Found, decide, version
from penstock.engine.resume.look import declared_by
from penstock.flow.schemas import with_earlier_schemas, with_schemas_of
from penstock.log import Log
from penstock.testing import Rig

OLD = "order_id long, country string, amount double"
NEW = f"{OLD}, note string"


def shop(schema: str) -> ps.App:
    app = ps.App("shop")
    orders = app.topic("orders", schema=schema, key="order_id")
    app.view("by_country", orders.group_by("country").agg(orders="count(*)", most="max(amount)"))
    app.view("large", orders.where("amount >= 100").select("order_id", "amount"))
    app.view("all_orders", orders)
    if "note" in schema:
        app.view("by_note", orders.group_by("note").agg(orders="count(*)"))
    return app


def versions(rig: Rig) -> Versions:
    last = Ledger(rig.directory).last_commit()
    assert last is not None
    return last.live.outputs


def test_the_decision_keeps_what_does_not_use_the_column(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        before = shop(OLD).plan
        outputs = {name: version(text, 1) for name, text in declared_by(log, before).fingerprints.items()}
        last = Commit(1, 1, 7, TrackRecord(Cut(1, 7, {}), outputs=outputs), schemas=with_schemas_of(before, {}))
        found = Found(last)
        resume = decide(declared_by(log, with_earlier_schemas(shop(NEW).plan, found.schemas)), found)
    assert set(resume.kept) == {"by_country", "large"}
    assert resume.rebuilt == ("all_orders",)
    assert resume.new == ("by_note",)


def test_views_that_do_not_use_a_new_column_keep_their_state(spark: Any) -> None:
    order = {"order_id": 1, "country": "DE", "amount": 120.0}
    with Rig(shop(OLD), spark=spark) as rig:
        rig.append("orders", [order])
        rig.run()
        before = versions(rig)
        rig.topic("orders").evolve(NEW)
        rig.append("orders", [{**order, "order_id": 2, "note": "fragile"}])
        rig.restart(shop(NEW))
        rig.run()
        assert rig.view("by_country") == [{"country": "DE", "orders": 2, "most": 120.0}]
        assert [row["order_id"] for row in rig.view("large")] == [1, 2]
        assert [row["note"] for row in rig.view("all_orders")] == [None, "fragile"]
        assert rig.view("by_note") == [{"note": None, "orders": 1}, {"note": "fragile", "orders": 1}]
        after = versions(rig)
        assert {name for name in before if after[name] == before[name]} == {"by_country", "large"}

        rig.restart(shop(NEW))  # the next start still knows which schema the states were made with
        rig.append("orders", [{**order, "order_id": 3, "note": None}])
        rig.run()
        assert rig.view("by_country") == [{"country": "DE", "orders": 3, "most": 120.0}]
        assert rig.account("by_country").came == 3
        assert versions(rig) == after
