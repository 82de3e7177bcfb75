"""How the delivery's one error budget is shared out between everything that may take a version back."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.spec import Delivery

ONCE = 0.1
"""What the golden set gets, and all bakes together: each is one look at much evidence."""
OFFLINE = "offline"


def shares(spec: Delivery) -> Mapping[str, float]:
    """Each trial's part of `gates.budget.rollback`, by its name (`canary@eu-west-1`, `bake@1/eu-west-1`).

    They sum to 1 at most, so whatever happens in whichever region, a version that is no worse is taken back
    with the stated chance at most. What a spec does not ask leaves its part to the others.
    """
    found: dict[str, float] = {}
    rest = 1.0
    if spec.offline:
        found[OFFLINE] = ONCE
        rest -= ONCE
    if bakes := _bakes(spec):
        found |= dict.fromkeys(bakes, ONCE / len(bakes))
        rest -= ONCE
    stages = [name for name in ("shadow", "canary") if getattr(spec, name)]
    trials = [f"{stage}@{region}" for region in spec.regions.names for stage in stages]
    return found | dict.fromkeys(trials, rest / len(trials) if trials else 0.0)


def _bakes(spec: Delivery) -> list[str]:
    """Promoted regions with a control: as long as a later wave serves the champion."""
    waves = spec.regions.waves[:-1] if spec.gates.errors else ()
    return [f"bake@{wave}/{region}" for wave, regions in enumerate(waves, start=1) for region in regions]
