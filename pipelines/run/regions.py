"""What a delivery makes of what a region shows: its trial goes on, or somebody else has it, or it is to be undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gates.model import GateOutcome, Verdict
from pipelines.errors import Stopped, by_others
from pipelines.model import Ending
from pipelines.ports import Fleet, SharedPlace
from rollouts.errors import NotOurs, NotPossible
from rollouts.manifests.ownership import HINT
from rollouts.model import EngineSet, ForeignObject, RegionState


def both_arms(state: RegionState) -> tuple[EngineSet, EngineSet]:
    """The stable and the canary of a region where a trial is on.

    Raises:
        NotPossible: when one of them is gone.
    """
    if state.stable is None or state.canary is None:
        missing = "stable" if state.stable is None else "canary"
        raise NotPossible(
            f"{state.region}: there is no {missing} engine",
            hint="see `tidegate status`; on this machine `tidegate fleet up` starts the champion"
            if state.stable is None
            else "see `tidegate status` and the log of the engine",
            detail=state.problem,
        )
    return state.stable, state.canary


def is_on(state: RegionState, version: str) -> bool:
    """Whether the region's users are on that version already, as after a promotion by a process that died."""
    return state.stable is not None and state.stable.version == version


def needs_undoing(state: RegionState, champion: str) -> bool:
    """Whether a region has a canary or serves something other than the champion."""
    # An empty region has nothing to undo: it never served, or its host is new.
    return state.canary is not None or (state.stable is not None and state.stable.version != champion)


def refuse_dead_canary(state: RegionState, version: str) -> None:
    """A canary that died has no verdict to wait for, and no users to get; `version` is on trial.

    Raises:
        Stopped: it died, which is the version's fault; or as `refuse_others`.
    """
    refuse_others(state, version)
    canary = state.canary
    if canary is None:
        # One that died stays to be seen: this one was taken away, perhaps by a rollback that we have not heard of yet.
        raise by_others(f"the canary is gone, and no one knows of it here: {state.problem or 'it was rolled back'}")
    if not canary.ready:
        # A reason is one line; the rest of the log is where logs are.
        words = (canary.problem or "nothing").splitlines()[-1].strip()
        raise Stopped(Ending.ROLLED_BACK, f"the canary does not serve; its log ends with: {words}")


def refuse_others(state: RegionState, version: str) -> None:
    """Somebody else changed the region meanwhile, which is not the version's fault, however its engines are by now.

    Raises:
        Stopped: the trial was taken away, the region is asked for another version, or what serves there is somebody
            else's.
    """
    if state.taken_away:
        raise by_others(state.taken_away)
    foreign = state.foreign_change
    if foreign and foreign.version != version:
        raise by_others(foreign.reason)
    if state.foreign_objects:
        raise by_others("; ".join(str(each) for each in state.foreign_objects))


async def promoted_verdict(fleet: Fleet, version: str) -> Verdict:
    """Whether a promoted region serves that version.

    Raises:
        Stopped: as `refuse_others`; or it serves another one well, since somebody sent it back, perhaps by a rollback
            that we have not heard of yet.
    """
    state = await fleet.observe()
    refuse_others(state, version)
    stable = state.stable
    if stable and stable.ready and stable.version != version:
        raise by_others(f"{state.region} was rolled back to version {stable.version}")
    # A warm previous that died is being restarted and costs nobody anything.
    well = stable is not None and stable.ready and stable.version == version
    reason = f"{state.region} is {state.phase} on version {stable.version if stable else 'none'}"
    if state.problem:
        reason += f": {state.problem}"
    return Verdict(gate="health", outcome=GateOutcome.PASS if well else GateOutcome.FAIL, reason=reason)


async def foreign_objects_in(fleet: Fleet) -> tuple[ForeignObject, ...]:
    """Those of one region; none where nobody else can have any, as on this machine."""
    return await fleet.foreign_objects() if isinstance(fleet, SharedPlace) else ()


async def refuse_foreign_objects(fleets: Iterable[Fleet]) -> None:
    """Return when no region has any.

    Raises:
        NotOurs: with all of them, region by region; nothing was written.
        FleetError: a region cannot be looked at.
    """
    regions = list(fleets)
    found = await asyncio.gather(*(foreign_objects_in(fleet) for fleet in regions))
    told = [
        f"{fleet.region}: {'; '.join(str(each) for each in others)}"
        for fleet, others in zip(regions, found, strict=True)
        if others
    ]
    if told:
        raise NotOurs("; ".join(told), hint=HINT)
