"""Timelines: everybody sees the ten newest posts of those they follow, and every change of mind counts at once.

    penstock run examples/timeline.py

and meanwhile, in another terminal:

    echo '{"follower": "ann", "followed": "bob"}' | penstock produce follows
    echo '{"post_id": 1, "author": "bob", "text": "hi", "posted_at": "2026-01-31T12:00:00Z"}' | penstock produce posts
    penstock query "select * from timelines"
    echo '{"follower": "ann", "followed": "bob"}' | penstock produce follows --delete
    penstock query "select * from timelines"
"""

import penstock as ps

app = ps.App("timeline")

# Tables: of each key the last row counts. To append a post again is to edit it, to delete it is to unpublish it.
posts = app.table(
    "posts",
    schema="post_id long not null, author string, text string, posted_at timestamp",
    key="post_id",
)

# A row says who follows whom; to delete it is to unfollow.
follows = app.table(
    "follows",
    schema="follower string not null, followed string not null",
    key=["follower", "followed"],
)

# Every post with everybody who sees it. Neither column is the key of its table: an author has many posts and many
# followers, and this has a row for each pair. A change on either side adds or takes away just the pairs it is part of.
seen = posts.join(follows, on={"author": "followed"}).drop("followed")

# The ten newest for each follower. When one of them is unpublished, the eleventh moves up.
app.view("timelines", seen.top(10, by="posted_at desc, post_id desc", per=["follower"]))

# What is made of the same rows moves in the same moment.
app.view("posts_seen", seen.group_by("follower").agg(posts="count(*)"))
app.view("followers", follows.group_by("followed").agg(followers="count(*)"))
