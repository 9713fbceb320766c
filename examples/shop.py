"""A small shop: what it sells in each country, and who its best customers are.

    penstock run examples/shop.py

or, which is the same:

    python examples/shop.py
"""

import penstock as ps

app = ps.App("shop")

orders = app.topic(
    "orders",
    schema="order_id long, customer string, country string, amount decimal(10,2), placed_at timestamp",
    key="order_id",
    time=ps.event_time("placed_at", lateness="1 second", idle="5 seconds"),
)

# One row for each country and window: final when the window closes, corrected when a late order comes.
revenue = (
    orders.window(ps.tumbling("5 seconds"))
    .group_by("country")
    .agg(revenue="sum(amount)", orders="count(*)", buyers="count(distinct customer)")
)
app.view("revenue", revenue)

# Running totals, and a ranking that follows them.
customers = orders.group_by("customer").agg(orders="count(*)", spent="sum(amount)")
app.view("best_customers", customers.top(5, by="spent desc"))
app.view("totals", orders.group_by().agg(orders="count(*)", revenue="sum(amount)"))

if __name__ == "__main__":
    app.run()
