"""`penstock repair`."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath
from penstock.cli.output import print_json, print_line, print_stderr


class Pending(StrEnum):
    """What becomes of rows of which it is not known whether their transaction was committed."""

    KEEP = "keep"
    CUT = "cut"


@command
def repair(
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this, only the plan is shown.")] = False,
    pending: Annotated[
        Pending | None, typer.Option(help="What becomes of rows whose transaction may or may not have been committed.")
    ] = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Rebuild a catalogue that is missing, damaged, foreign or older than its log, and name what is lost with it.

    Prints the plan; --execute does it. Stop everything that uses the log first. The old files are kept beside the new.
    """
    from penstock.log import carry_out_repair, plan_repair

    plan = plan_repair(log_path)
    done = execute and plan.problem is not None
    aside = carry_out_repair(log_path, plan, pending=pending) if done else None
    if as_json:
        document = {"problem": plan.problem, "rebuilt": plan.rebuilt, "lost": plan.lost, "executed": done}
        undecided = [asdict(stretch) for stretch in plan.undecided]
        print_json(document | {"undecided": undecided, "old_catalogue": str(aside) if aside else None})
        return
    if plan.problem is None:
        print_line("the catalogue is as it was written")
        return
    print_line(f"problem: {plan.problem}")
    for line in plan.rebuilt:
        print_line(f"rebuilt: {line}")
    for line in plan.lost:
        print_line(f"lost: {line}")
    for stretch in plan.undecided:
        offsets = f"offsets {stretch.start} to {stretch.end - 1}"
        print_line(f"undecided: topic '{stretch.topic}' partition {stretch.partition}: {offsets}")
    if aside:
        print_line(f"the catalogue was rebuilt; the old one is {aside}")
    else:
        more = " --pending keep or --pending cut, and" if plan.undecided else ""
        print_stderr(f"nothing was changed; add{more} --execute to do this")
