"""`tidegate rollback --to`: further back than the version that production had before the delivery."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.adapters.lock import delivery_lock, one_rollback
from pipelines.way_back import cold, in_words, previous_of
from rollouts.model import RegionState
from tidegate.cli.commands.rollback import Back, moved, stopped_elsewhere, stopped_here, told_to_end
from tidegate.cli.output import note
from tidegate.core.errors import OutsideError, Refused, TidegateError, UsageError

PREVIOUS = "previous"


@dataclass(frozen=True)
class Further:
    """What the person asked for."""

    to: str
    start: bool
    yes: bool


async def go_further(asked: Further, back: Back) -> list[str]:
    """Every region to that version, once a person has said yes; returns what went wrong.

    Raises:
        UsageError: it is not warm everywhere and may not be started, or nobody can be asked.
        Refused: the person said no; nothing was changed.
        OutsideError: a region cannot be seen, so nobody knows what would become of it.
    """
    states = await _looked(back)
    version = asked.to if asked.to != PREVIOUS else previous_of(states, await _alias(back, states))
    if _there(states, version):
        return []
    _require_warm(states, version, start=asked.start)
    _require_yes(in_words(states, version), yes=asked.yes)
    process = told_to_end(back.state)
    await back.now()
    with one_rollback(back.state.root, note):
        wrong = await stopped_here(process, back.state)
        try:
            await stopped_elsewhere(back)
        except TidegateError as error:
            note(f"no delivery elsewhere was told: {error}")
        # The host of this machine takes a canary back that no delivery stands behind.
        with delivery_lock(back.state.lock):
            wrong += await _moved(back, version)
        if not wrong:
            await _recorded(back, version)
    return wrong


async def _looked(back: Back) -> dict[str, RegionState]:
    found = await asyncio.gather(*(fleet.observe() for fleet in back.fleets.values()))
    return dict(zip(back.fleets, found, strict=True))


async def _alias(back: Back, states: Mapping[str, RegionState]) -> str | None:
    if any(state.previous for state in states.values()):
        return None
    try:
        return await back.records.previous()
    except OutsideError as error:
        note(f"MLflow was asked for the alias `previous`: {error}")
        return None


def _there(states: Mapping[str, RegionState], version: str) -> bool:
    return all(state.stable and state.stable.version == version and not state.canary for state in states.values())


def _require_warm(states: Mapping[str, RegionState], version: str, *, start: bool) -> None:
    missing = cold(states, version)
    if missing and not start:
        warm = [name for name in states if name not in missing]
        where = f"; it is in {', '.join(warm)}" if warm else ""
        raise UsageError(
            f"version {version} is not warm in {', '.join(missing)}{where}",
            hint="--start starts it again there, which takes minutes",
        )


def _require_yes(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"production would move ({question}), and nobody can be asked here", hint="add --yes")
    print(f"{question}\nMove production? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")


async def _moved(back: Back, version: str) -> list[str]:
    found = await asyncio.gather(*(moved(back, region, version) for region in back.fleets), return_exceptions=True)
    wrong: list[str] = []
    for region, error in zip(back.fleets, found, strict=True):
        if isinstance(error, TidegateError):
            wrong.append(f"{region}: {error}")
        elif isinstance(error, BaseException):
            raise error
    return wrong


async def _recorded(back: Back, version: str) -> None:
    try:
        await back.records.reinstate(version)
    except TidegateError as error:
        name = back.spec.model.name
        note(f"`champion` was not moved: {error}; later: `tidegate model alias {name} {version} champion`")
