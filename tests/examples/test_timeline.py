"""Timelines follow publish, unpublish, follow and unfollow; what they should show is worked out in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.app import load_app
from penstock.testing import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "timeline.py"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PEOPLE = ("ann", "bob", "cy")


class Network:
    """What people do, done in the log, and remembered to say what the views should show."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.posts: dict[int, dict[str, Any]] = {}
        self.follows: set[tuple[str, str]] = set()

    def publish(self, number: int, author: str, *, minute: int | None = None, text: str = "hello") -> None:
        posted_at = NOON + timedelta(minutes=number if minute is None else minute)
        self.posts[number] = {"post_id": number, "author": author, "text": text, "posted_at": posted_at}
        self.rig.append("posts", [self.posts[number]])

    def unpublish(self, number: int) -> None:
        self.posts.pop(number, None)
        self.rig.append("posts", [{"post_id": number}], deleted=True)

    def follow(self, follower: str, followed: str) -> None:
        self.follows.add((follower, followed))
        self.rig.append("follows", [{"follower": follower, "followed": followed}])

    def unfollow(self, follower: str, followed: str) -> None:
        self.follows.discard((follower, followed))
        self.rig.append("follows", [{"follower": follower, "followed": followed}], deleted=True)

    # -- what is shown, compared with what should be ------------------------------------------------------------------

    def timeline(self, follower: str) -> list[int]:
        """The numbers of the posts that somebody sees, the newest first; all views are checked on the way."""
        self.check()
        rows = self.rig.query("SELECT post_id FROM timelines WHERE follower = ? ORDER BY rank", [follower])
        return [row["post_id"] for row in rows]

    def check(self) -> None:
        self.rig.run()
        seen = {follower: self.seen_by(follower) for follower in {one for one, _ in self.follows}}
        assert _by(self.rig.view("timelines"), "follower", "rank") == {
            (follower, rank): {**post, "follower": follower, "rank": rank}
            for follower, posts in seen.items()
            for rank, post in enumerate(posts[:10], start=1)
        }
        counts = {row["follower"]: row["posts"] for row in self.rig.view("posts_seen")}
        assert counts == {follower: len(posts) for follower, posts in seen.items() if posts}
        followers = {row["followed"]: row["followers"] for row in self.rig.view("followers")}
        assert followers == Counter(followed for _, followed in self.follows)

    def seen_by(self, follower: str) -> list[dict[str, Any]]:
        seen = [post for post in self.posts.values() if (follower, post["author"]) in self.follows]
        return sorted(seen, key=lambda post: (post["posted_at"], post["post_id"]), reverse=True)


def _by(rows: list[dict[str, Any]], *key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.fixture
def network(spark: SparkSession) -> Iterator[Network]:
    with Rig(load_app(EXAMPLE), spark=spark) as rig:
        yield Network(rig)


def test_a_post_is_seen_by_all_followers_until_it_is_unpublished(network: Network) -> None:
    network.follow("ann", "bob")
    network.follow("cy", "bob")
    assert network.timeline("ann") == []
    network.publish(1, "bob")
    network.publish(2, "dee")
    assert network.timeline("ann") == network.timeline("cy") == [1]
    network.publish(3, "bob")
    assert network.timeline("ann") == network.timeline("cy") == [3, 1]
    network.unpublish(1)
    assert network.timeline("ann") == network.timeline("cy") == [3]


def test_who_follows_sees_what_was_published_before_until_they_unfollow(network: Network) -> None:
    network.publish(1, "bob")
    network.publish(2, "cy")
    network.publish(3, "bob")
    assert network.timeline("ann") == []
    network.follow("ann", "bob")
    assert network.timeline("ann") == [3, 1]
    network.follow("ann", "cy")
    assert network.timeline("ann") == [3, 2, 1]
    network.unfollow("ann", "bob")
    assert network.timeline("ann") == [2]
    network.follow("ann", "bob")
    assert network.timeline("ann") == [3, 2, 1]


def test_ten_posts_are_kept_and_the_eleventh_comes_back_when_a_newer_one_goes(network: Network) -> None:
    network.follow("ann", "bob")
    for number in range(1, 12):
        network.publish(number, "bob")
    assert network.timeline("ann") == [*range(11, 1, -1)]
    network.unpublish(7)
    assert network.timeline("ann") == [11, 10, 9, 8, 6, 5, 4, 3, 2, 1]
    network.publish(12, "bob")
    assert network.timeline("ann") == [12, 11, 10, 9, 8, 6, 5, 4, 3, 2]


def test_an_old_post_that_comes_late_stands_where_it_belongs(network: Network) -> None:
    network.follow("ann", "bob")
    network.publish(1, "bob", minute=10)
    network.publish(2, "bob", minute=30)
    assert network.timeline("ann") == [2, 1]
    network.publish(3, "bob", minute=20)
    assert network.timeline("ann") == [2, 3, 1]


def test_an_edited_post_is_shown_as_it_is_now_and_to_whom_it_belongs_now(network: Network) -> None:
    network.follow("ann", "bob")
    network.follow("cy", "dee")
    network.publish(1, "bob", text="helo")
    network.check()
    network.publish(1, "bob", text="hello")
    network.check()
    assert [row["text"] for row in network.rig.view("timelines")] == ["hello"]
    network.publish(1, "dee", text="hello")
    assert (network.timeline("ann"), network.timeline("cy")) == ([], [1])


def test_a_post_without_an_author_is_seen_by_nobody(network: Network) -> None:
    network.follow("ann", "bob")
    network.rig.append("posts", [{"post_id": 1, "author": None, "text": "whose?", "posted_at": NOON}])
    assert network.timeline("ann") == []


def test_what_comes_and_goes_between_two_epochs_leaves_no_trace(network: Network) -> None:
    network.follow("ann", "bob")
    network.publish(1, "bob")
    network.unpublish(1)
    network.publish(2, "bob")
    network.unfollow("ann", "bob")
    network.follow("ann", "bob")
    assert network.timeline("ann") == [2]


person = st.sampled_from(PEOPLE)
# Few posts, so that the same one is published, edited and unpublished; more than ten of an author, so that some wait.
number = st.integers(1, 25)
deed = st.one_of(
    st.tuples(st.just("publish"), number, person),
    st.tuples(st.just("publish"), number, person),
    st.tuples(st.just("unpublish"), number),
    st.tuples(st.just("follow"), person, person),
    st.tuples(st.just("unfollow"), person, person),
)


@settings(max_examples=4)
@given(st.lists(st.lists(deed, min_size=10, max_size=40), min_size=1, max_size=3))
def test_whatever_people_do_the_views_show_what_is_true_now(
    spark: SparkSession, epochs: list[list[tuple[Any, ...]]]
) -> None:
    with Rig(load_app(EXAMPLE), spark=spark) as rig:
        network = Network(rig)
        for deeds in epochs:
            for name, *what in deeds:
                getattr(network, name)(*what)
            network.check()
