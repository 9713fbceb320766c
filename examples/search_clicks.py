"""Searches and clicks: which searches led to a click within an hour, which did not, and how often for each term.

    penstock run examples/search_clicks.py

and meanwhile, in another terminal:

    echo '{"search_id": 1, "term": "tea", "searched_at": "2026-01-31T12:00:00Z"}' | penstock produce searches
    echo '{"search_id": 2, "term": "ink", "searched_at": "2026-01-31T12:01:00Z"}' | penstock produce searches
    echo '{"search_id": 1, "url": "/green-tea", "clicked_at": "2026-01-31T12:02:00Z"}' | penstock produce clicks
    penstock query "select * from outcomes"

The first search is there with its click; of the second one nobody knows yet. A search and a click at 14:00 tell that
time has passed, and it is there without one.
"""

import penstock as ps

app = ps.App("search_clicks")

searches = app.topic(
    "searches",
    schema="search_id long, term string, searched_at timestamp",
    key="search_id",
    time="searched_at",
    lateness="1 minute",
)
clicks = app.topic(
    "clicks",
    schema="search_id long, url string, clicked_at timestamp",
    key="search_id",
    time="clicked_at",
    lateness="1 minute",
)

# A row for each click on what a search has found, at once. A search without any has one row, with nulls, when its hour
# is over by the watermark; a click of that hour which comes still later takes that row back and puts its own there.
outcomes = searches.join(clicks, on="search_id", within="1 hour", how="left")
app.view("outcomes", outcomes)
app.view("not_clicked", outcomes.where("clicked_at is null").select("search_id", "term", "searched_at"))

# How many searches of each hour led to a click, by term; a search with several clicks counts once. An hour is final
# when all its searches have had an hour of their own. A late click corrects it, and `revision` counts how often.
click_through = (
    outcomes.window(ps.tumbling("1 hour"))
    .group_by("term")
    .agg(
        searches="count(distinct search_id)",
        clicked="count(distinct search_id) filter (where clicked_at is not null)",
        rate="count(distinct search_id) filter (where clicked_at is not null) / count(distinct search_id)",
    )
)
app.view("click_through", click_through)
