"""Which version a region goes back to when a person asks for a rollback. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from registry.model import DeliverySummary
from rollouts.model import RegionState
from tidegate.core.errors import UsageError

DELIVERED = "delivered"


def before(states: Mapping[str, RegionState], last: DeliverySummary | None) -> dict[str, str]:
    """The regions that an unfinished delivery has promoted, each with the version that it goes back to.

    A delivery that is over as delivered is not taken back by this, and nothing is ever moved forward.
    """
    if last is None:
        return {}
    delivered, champion = last.engines
    if champion is None or last.outcome == DELIVERED or champion == delivered:
        return {}
    return {name: champion for name, state in states.items() if _stable(state) == delivered}


def before_by_others(states: Mapping[str, RegionState]) -> dict[str, str]:
    """The same without the ledger: a region whose way back is what another region still serves was promoted alone."""
    served = {_stable(state) for state in states.values()}
    return {
        name: state.previous.version
        for name, state in states.items()
        if state.previous and state.previous.version != _stable(state) and state.previous.version in served
    }


def previous_of(states: Mapping[str, RegionState], alias: str | None) -> str:
    """The version that `--to previous` means: what every region keeps as its way back, else what the alias says.

    Raises:
        UsageError: they do not agree, or no one knows.
    """
    known = {state.previous.version for state in states.values() if state.previous}
    if len(known) > 1:
        each = ", ".join(f"{name} {state.previous.version}" for name, state in states.items() if state.previous)
        raise UsageError(f"the regions have different versions before theirs ({each})", hint="choose one: --to VERSION")
    found = next(iter(known), None) or alias
    if found is None:
        raise UsageError("no region keeps a version before its own warm", hint="choose one: --to VERSION --start")
    return found


def cold(states: Mapping[str, RegionState], version: str) -> Sequence[str]:
    """The regions that would have to start it again."""
    return [name for name, state in states.items() if _stable(state) != version and version not in state.warm]


def in_words(states: Mapping[str, RegionState], version: str) -> str:
    """What going to that version means, region by region, as a person is asked it."""
    told = []
    for name, state in states.items():
        now = _stable(state) or "nobody"
        how = "it stays" if now == version else "warm" if version in state.warm else "has to be started again: minutes"
        told.append(f"{name}: {now} -> {version} ({how})")
    return "; ".join(told)


def is_back(state: RegionState) -> bool:
    """Whether nobody is on trial, and no user or copy leaves the stable."""
    taken_back = state.canary is None or not state.canary.ready
    return taken_back and not state.weight and not state.mirror


def _stable(state: RegionState) -> str:
    return state.stable.version if state.stable else ""
