"""The shop, live: orders are appended all the time, some of them late, and its views move in the terminal.

    python examples/live.py                 half a minute, in a temporary folder
    python examples/live.py 120 ./shop      two minutes, in a folder of your own, to ask meanwhile:
                                            penstock query "select * from best_customers" --log ./shop

The app is examples/shop.py, run by `app.run`. At the end the views are compared with the log.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import FrameType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from shop import app

from penstock import Log, PenstockError

SECONDS = 30.0
COUNTRIES = ("DE", "FR", "IT", "JP")
CUSTOMERS = ("Ada", "Bela", "Chloe", "Dai", "Eve", "Finn", "Gita", "Hugo", "Ines", "Jun", "Kofi", "Lena")
ORDERS_AT_A_TIME = 50
SECONDS_BETWEEN = 0.1
LATE = 0.01  # one order in a hundred comes much later than it was placed


# -- The world: orders that come in all the time -----------------------------------------------------------------------


def order(number: int, dice: random.Random) -> dict[str, object]:
    delay = dice.uniform(4, 9) if dice.random() < LATE else dice.uniform(0, 0.8)
    return {
        "order_id": number,
        "customer": dice.choice(CUSTOMERS),
        "country": dice.choices(COUNTRIES, weights=(5, 3, 2, 1))[0],
        "amount": Decimal(dice.randint(100, 20_000)) / 100,
        "placed_at": datetime.now(UTC) - timedelta(seconds=delay),
    }


def keep_ordering(folder: Path, seconds: float, closed: threading.Event) -> None:
    """Append orders for so long, and then close the shop."""
    dice = random.Random(7)
    with Log(folder) as log:
        while "orders" not in log.topics():  # the app makes it when it starts
            if closed.wait(0.1):
                return
        orders, number, opened = log.topic("orders"), 0, time.monotonic()
        while time.monotonic() - opened < seconds and not closed.wait(SECONDS_BETWEEN):
            orders.append([order(number + one, dice) for one in range(ORDERS_AT_A_TIME)])
            number += ORDERS_AT_A_TIME
    closed.set()


# -- What we see -------------------------------------------------------------------------------------------------------


def summary() -> Text:
    try:
        totals = app.query("SELECT * FROM totals")
    except PenstockError:  # the app has not made its views yet
        return Text("starting Spark ...")
    if not totals:
        return Text("waiting for the first order ...")
    return Text(f"{totals[0]['orders']:>7,} orders, {totals[0]['revenue']:>12,} revenue", style="bold")


def screen() -> Group | Text:
    seen = summary()
    if seen.plain.endswith("..."):
        return seen
    windows = app.query("SELECT * FROM revenue ORDER BY window_start DESC, country LIMIT 8")
    best = app.query("SELECT * FROM best_customers ORDER BY rank")
    return Group(seen, _windows_table(windows), _customers_table(best))


def _windows_table(windows: list[dict[str, object]]) -> Table:
    table = Table("window", "country", "revenue", "orders", "buyers", "revision", title="revenue", title_justify="left")
    for row in windows:
        begins, ends = row["window_start"], row["window_end"]
        assert isinstance(begins, datetime)
        assert isinstance(ends, datetime)
        late = "bold yellow" if row["revision"] else ""  # a late order has corrected it
        cells = [str(row[name]) for name in ("country", "revenue", "orders", "buyers", "revision")]
        table.add_row(f"{begins:%H:%M:%S} - {ends:%H:%M:%S}", *cells, style=late)
    return table


def _customers_table(best: list[dict[str, object]]) -> Table:
    table = Table("rank", "customer", "orders", "spent", title="best customers", title_justify="left")
    for row in best:
        table.add_row(*(str(row[name]) for name in ("rank", "customer", "orders", "spent")))
    return table


def show(stop: threading.Event) -> None:
    console = Console()
    if console.is_terminal:
        with Live(screen(), console=console, refresh_per_second=4) as live:
            while not stop.wait(0.25):
                live.update(screen())
            live.update(screen())
        return
    while not stop.wait(5):
        console.print(summary())
    console.print(screen())


# -- The whole of it ---------------------------------------------------------------------------------------------------


def close_on_ctrl_c(closed: threading.Event) -> threading.Event:
    """Let Ctrl-C close the shop: the epoch that runs is finished. Pressed twice, it ends everything at once."""
    pressed = threading.Event()

    def close(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            os._exit(130)
        pressed.set()
        closed.set()

    signal.signal(signal.SIGINT, close)
    return pressed


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as temporary:
        app.log = Path(sys.argv[2] if len(sys.argv) > 2 else temporary)
        print(f"A shop takes orders for {seconds:.0f} seconds; its views follow. (examples/shop.py)")
        closed, stop = threading.Event(), threading.Event()
        pressed = close_on_ctrl_c(closed)
        world = threading.Thread(target=keep_ordering, args=(app.log, seconds, closed))
        viewer = threading.Thread(target=show, args=(stop,))
        world.start()
        viewer.start()
        try:
            app.run(stop=closed)
            world.join()
            app.run(once=True, stop=pressed)  # what came since
        finally:
            closed.set()
            stop.set()
            viewer.join()
        if pressed.is_set():
            print("Stopped by Ctrl-C.")
        else:
            compare()


def compare() -> None:
    """The views beside the log they come from."""
    with Log(app.log, create=False) as log:
        rows = log.topic("orders").read()
    (totals,) = app.query("SELECT * FROM totals")
    corrected = app.query("SELECT count(*) AS windows FROM revenue WHERE revision > 0")[0]["windows"]
    revenue = sum((row["amount"] for row in rows), Decimal())
    assert (totals["orders"], totals["revenue"]) == (len(rows), revenue), "the views differ from the log"
    print(
        f"Verified: {len(rows):,} orders in the log and in the views, {revenue:,} revenue in both, to the cent; "
        f"late orders corrected {corrected} windows."
    )


if __name__ == "__main__":
    main()
