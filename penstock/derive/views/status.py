"""What the views of an app are and how fresh: for people and programs that look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.engine.ledger.records import Account
from penstock.log.ddl import type_ddl
from penstock.log.schema import parse_schema

if TYPE_CHECKING:
    from penstock.derive.views.snapshot import Snapshot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view at one moment; all of one call are of the same moment.

    `columns` are names with Spark types. `key` is None for a view whose rows may repeat. `watermark` is the time up to
    which everything is in the view; None where there is none, or one outside of the years 1 to 9999. `account` says
    what became of the events that were read for it. `rebuilding`: another version of it is being built, and this one
    does not change until that one takes its place.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] | None
    rows: int
    epoch: int
    committed_at: datetime | None
    watermark: datetime | None
    account: Account | None
    rebuilding: bool

    @property
    def facts(self) -> dict[str, int]:
        """The account as numbers by name; empty without one."""
        return {} if self.account is None else asdict(self.account)


def view_statuses(snapshot: Snapshot) -> list[ViewStatus]:
    """The views of a snapshot, by name."""
    commit = snapshot.commit
    if commit is None:
        return []
    being_built = commit.backfill.track.views if commit.backfill else {}
    accounts = {**commit.replaced.accounts, **commit.live.accounts}
    return [
        ViewStatus(
            name=name,
            columns={field.name: type_ddl(field.type) for field in parse_schema(view.columns)},
            key=view.key,
            rows=_row_count(snapshot, name),
            epoch=snapshot.epoch,
            committed_at=snapshot.committed_at,
            watermark=_instant(view.watermark),
            account=accounts.get(name),
            rebuilding=name in being_built or (name in commit.replaced.views and name not in commit.live.views),
        )
        for name, view in sorted(snapshot.stored.items())
    ]


def _row_count(snapshot: Snapshot, name: str) -> int:
    view = snapshot.stored[name]
    if view.growth == "appended":  # the commit knows, and nothing need be opened
        return sum(run.rows for runs in view.runs.values() for run in runs)
    return snapshot.open(name).row_count


def _instant(microseconds: int | None) -> datetime | None:
    try:
        return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
