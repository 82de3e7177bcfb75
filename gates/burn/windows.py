"""A burn's windows on the scale of a stage: minutes, where an alert has hours."""

from __future__ import annotations

from collections.abc import Container
from datetime import timedelta

from gates.burn.spec import BurnRateGate, BurnWindows


def scaled_to(gate: BurnRateGate, stage: timedelta, *, look: timedelta, written: Container[str] = ()) -> BurnRateGate:
    """The gate with its longest window as long as the stage and the others in proportion.

    Pairs that are `written` out, of `fast` and `slow`, stay as they are. A window shorter than one `look` at the
    evidence would be that look all the same, so none is.
    """
    pairs = {name: pair for name, pair in (("fast", gate.fast), ("slow", gate.slow)) if name not in written}
    longest = max((pair.long for pair in pairs.values()), default=stage)
    return gate.model_copy(update={name: _scaled(pair, stage / longest, look) for name, pair in pairs.items()})


def _scaled(windows: BurnWindows, shrink: float, look: timedelta) -> BurnWindows:
    short = max(windows.short * shrink, look)
    # The short window must end a burn sooner than the long one does.
    return BurnWindows(short=short, long=max(windows.long * shrink, 2 * short), factor=windows.factor)
