"""A line: some views of an app on their way along the log, with the cut and the states they have reached.

An app has one line. While views that changed are built again, it has a second one for them, which starts at the beginning of the
log and ends where the first one stands; then the two become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.accounts import Account, account, meters
from penstock.engine.build.graph import timed_sources
from penstock.engine.cut import Cut
from penstock.engine.epochs import States
from penstock.engine.planning import Input, watermark
from penstock.engine.running import Engine, Ran
from penstock.flow import plan as flow


@dataclass(frozen=True, slots=True)
class Line:
    """Where some views are: everything up to `cut` is in `states` and `accounts`."""

    engine: Engine
    plan: flow.Plan
    inputs: Mapping[str, Input]
    cut: Cut
    states: States
    accounts: Mapping[str, Account]

    def moved(self, cut: Cut, ran: Ran) -> Line:
        """The line after an epoch."""
        totals = {name: self.accounts.get(name, Account()) + one for name, one in self.epoch_accounts(ran).items()}
        return replace(self, cut=cut, states=ran.states, accounts=totals)

    def epoch_accounts(self, ran: Ran) -> dict[str, Account]:
        """What became of the events of one epoch, by view."""
        state_of = {
            state.node: state.name
            for state in self.engine.built().states.values()
            if "events" in ran.state_counts.get(state.name, {})
        }
        return {
            view.name: account(view.name, meters(view.node, state_of), ran.source_counts, ran.state_counts, ran.added)
            for view in self.plan.views
        }

    def watermark_of(self, node: flow.Node) -> int:
        return watermark(self.cut, timed_sources(node))

    def to_document(self) -> dict[str, Any]:
        return {
            "cut": self.cut.to_document(),
            "accounts": {name: one.to_document() for name, one in self.accounts.items()},
        }


def accounts_of(document: Mapping[str, Any]) -> dict[str, Account]:
    return {name: Account(**one) for name, one in document["accounts"].items()}
