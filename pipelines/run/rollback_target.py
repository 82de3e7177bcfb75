"""Which version a region goes back to when a person asks for a rollback. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from registry.model import DeliverySummary
from rollouts.model import RegionState
from tidegate.core.errors import UsageError

DELIVERED = "delivered"


def before(states: Mapping[str, RegionState], last: DeliverySummary | None) -> dict[str, str]:
    """The regions that an unfinished delivery has promoted, each with the version that it goes back to.

    A delivery that is over as delivered is not rolled back by this, and nothing is ever moved forward.
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


def already_there(states: Mapping[str, RegionState], version: str) -> bool:
    """Whether every region serves that version, with nothing on trial."""
    return all(_stable(state) == version and not state.canary for state in states.values())


def require_warm(states: Mapping[str, RegionState], version: str, *, start: bool) -> None:
    """Be sure that nobody has to wait for a start, unless that was asked for.

    Raises:
        UsageError: a region does not keep it warm.
    """
    missing = cold(states, version)
    if missing and not start:
        warm = [name for name in states if name not in missing]
        where = f"; it is in {', '.join(warm)}" if warm else ""
        raise UsageError(
            f"version {version} is not warm in {', '.join(missing)}{where}",
            hint="--start starts it again there, which takes minutes",
        )


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


def state_text(state: RegionState, to: str | None = None) -> str:
    """What a region that was asked to go back shows, and to which version `to` it goes next."""
    if state.foreign_objects:
        return f"nothing was rolled back: {'; '.join(map(str, state.foreign_objects))}"
    if state.stable is None:
        return "serves nobody"
    left = f"; {state.problem}" if state.problem else ""
    if to not in (None, state.stable.version) and is_back(state):
        return f"goes from version {state.stable.version} to version {to}{left}"
    return f"all users are on version {state.stable.version}{left}" if is_back(state) else f"is not back yet{left}"


def _stable(state: RegionState) -> str:
    return state.stable.version if state.stable else ""
