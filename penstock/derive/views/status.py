"""The status of an app's views: what they are, and how fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.engine.ledger.gaps import gaps_of_output
from penstock.engine.ledger.records import Account, Gap
from penstock.schema.arrow import parse_schema
from penstock.schema.ddl import type_ddl
from penstock.units import utc_datetime

if TYPE_CHECKING:
    from penstock.derive.views.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """The status of one view. All statuses of one call come from the same commit.

    - `columns`: the Spark types of columns by name.
    - `key`: None for a view whose rows may repeat.
    - `watermark`: the time up to which everything is in the view. None without one, or outside the years 1 to 9999.
    - `account`: what became of the events that were read for it.
    - `rebuilding`: another version of it is being built, and this one does not change until it is replaced.
    - `gaps`: the offsets that it was built without, because the log no longer had them.
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
    gaps: tuple[Gap, ...] = ()

    @property
    def facts(self) -> dict[str, int]:
        """The account as numbers by name. Empty without an account."""
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
            watermark=_utc_datetime_or_none(view.watermark),
            account=accounts.get(name),
            rebuilding=name in being_built or (name in commit.replaced.views and name not in commit.live.views),
            gaps=gaps_of_output(commit.gaps, name, view.version),
        )
        for name, view in sorted(snapshot.stored_views.items())
    ]


def _row_count(snapshot: Snapshot, name: str) -> int:
    view = snapshot.stored_views[name]
    if view.growth == "appended":  # the commit has the count, so no file is opened
        return sum(run.rows for runs in view.runs.values() for run in runs)
    return snapshot.open(name).row_count


def _utc_datetime_or_none(microseconds: int | None) -> datetime | None:
    try:
        return None if microseconds is None else utc_datetime(microseconds)
    except OverflowError:
        return None
