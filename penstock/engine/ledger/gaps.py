"""Gaps: offsets that an app was told to do without, because the log no longer had them. Pure functions over records.

Retention removes the beginning of a partition only. So whatever has read less than where a gap ends continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.engine.ledger.ledger import APP_NAME, Ledger
from penstock.engine.ledger.records import Gap, Versions
from penstock.engine.plan.cut import Cut, Ends, SourceCut
from penstock.errors import RangeError
from penstock.units import utc_datetime

# An error names so many partitions; `penstock plan` lists all of them.
MOST_PARTITIONS_NAMED = 8

Reading = Callable[[str], Versions]
"""The outputs that read a topic, with their versions."""


def app_gaps(directory: Path) -> tuple[Gap, ...]:
    """The gaps of the app in this folder: what its views and sinks, as of the last commit, were built without."""
    if not (directory / APP_NAME).exists():
        return ()
    last = Ledger(directory).last_commit()
    return () if last is None else last.gaps


def gaps_of_output(gaps: Iterable[Gap], name: str, version: str) -> tuple[Gap, ...]:
    """The gaps in a view or sink."""
    return tuple(gap for gap in gaps if gap.outputs.get(name) == version)


def find_unread_gaps(cut: Cut, starts: Mapping[str, Ends], reading: Reading, *, now: int) -> tuple[Gap, ...]:
    """What a cut has not read and the log no longer has. `starts` are the first offsets of its topics."""
    gaps = []
    for name, source in cut.sources.items():
        for number, start in sorted(starts.get(name, {}).items()):
            read = source.ends.get(number, start)
            if read < start:
                gaps.append(Gap(name, source.topic_id, number, read, start, now, reading(name)))
    return tuple(gaps)


def skip_gaps(cut: Cut, gaps: Iterable[Gap]) -> Cut:
    """The same cut, but not behind the end of any gap."""
    ends: dict[tuple[str, int], int] = {}
    for gap in gaps:
        place = gap.topic_id, gap.partition
        ends[place] = max(gap.end, ends.get(place, 0))

    def skipped(source: SourceCut) -> SourceCut:
        moved = {number: max(end, ends.get((source.topic_id, number), 0)) for number, end in source.ends.items()}
        return replace(source, ends=moved)

    return replace(cut, sources={name: skipped(source) for name, source in cut.sources.items()})


def add_gaps(gaps: Sequence[Gap], new: Iterable[Gap]) -> tuple[Gap, ...]:
    """All of these gaps; those of the same outputs that touch each other become one."""
    result = list(gaps)
    for gap in new:
        merged = [gap, *(known for known in result if _touch(known, gap))]
        result = [known for known in result if known not in merged]
        start, end = min(part.start for part in merged), max(part.end for part in merged)
        result.append(replace(gap, start=start, end=end))
    return tuple(sorted(result, key=lambda gap: (gap.topic, gap.partition, gap.start, gap.end)))


def _touch(known: Gap, gap: Gap) -> bool:
    same = _place(known) == _place(gap) and known.outputs == gap.outputs
    return same and known.start <= gap.end and gap.start <= known.end


def unknown_gaps(new: Iterable[Gap], accepted: Sequence[Gap]) -> tuple[Gap, ...]:
    """The gaps that no accepted one includes."""
    return tuple(gap for gap in new if not any(_includes(known, gap) for known in accepted))


def _includes(known: Gap, gap: Gap) -> bool:
    same = _place(known) == _place(gap) and gap.outputs.items() <= known.outputs.items()
    return same and known.start <= gap.start and gap.end <= known.end


def _place(gap: Gap) -> tuple[str, int]:
    return gap.topic_id, gap.partition


def current_gaps(gaps: Iterable[Gap], *outputs: Versions) -> tuple[Gap, ...]:
    """The gaps as far as they are gaps of outputs that there still are."""
    current = {(name, version) for versions in outputs for name, version in versions.items()}
    kept = (
        replace(gap, outputs={name: version for name, version in gap.outputs.items() if (name, version) in current})
        for gap in gaps
    )
    return tuple(gap for gap in kept if gap.outputs)


def gap_text(gap: Gap) -> str:
    """Where a gap is, and how large."""
    count = gap.end - gap.start
    offsets = f"offset {gap.start}" if count == 1 else f"offsets {gap.start:,} to {gap.end - 1:,} ({count:,} offsets)"
    return f"topic '{gap.topic}', partition {gap.partition}: {offsets}"


def gap_document(gap: Gap) -> dict[str, object]:
    """A gap for JSON. `start` is the first offset that is missing, `end` the first that is not."""
    return {
        "topic": gap.topic,
        "partition": gap.partition,
        "start": gap.start,
        "end": gap.end,
        "offsets": gap.end - gap.start,
        "missing_in": sorted(gap.outputs),
        "accepted_at": utc_datetime(gap.accepted_at),
    }


def gaps_text(gaps: Sequence[Gap]) -> str:
    """Several gaps on one line; with very many, the first ones and how many there are."""
    places = list(dict.fromkeys(map(gap_text, gaps)))
    text = "; ".join(places[:MOST_PARTITIONS_NAMED])
    more = len(places) - MOST_PARTITIONS_NAMED
    return text if more <= 0 else f"{text}; and {more} more, which `penstock plan` lists"


def gaps_error(app: str, unread: Sequence[Gap], unbuilt: Sequence[Gap], *, options: str = "") -> RangeError:
    """Why an app does not continue: `unread` rows are gone, and so are rows of which outputs are to be built.

    `options` are those of the run that has failed.
    """
    command = f"penstock run FILE{options} --from-oldest"
    later = "these rows are then missing in views and sinks, and `penstock views` shows the gap from then on"
    if unread:
        message = f"app '{app}': rows that it has not read were removed by retention: {gaps_text(unread)}"
        if unbuilt:
            message += f"; and views or sinks are to be built from rows that were removed: {gaps_text(unbuilt)}"
        hint = f"continue without them: {command}; {later}. Rows of a table that were changed there stay as they were"
        return RangeError(message, hint=f"{hint}. To keep rows for longer: penstock topic retain")
    message = f"app '{app}': views or sinks are to be built from rows that were removed by retention: "
    return RangeError(
        message + gaps_text(unbuilt),
        hint=f"build them from what is left: {command}; {later}. Or run the program as it was, or restore a savepoint",
    )
