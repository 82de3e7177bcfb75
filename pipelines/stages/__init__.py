"""The one list of stages: the local runner walks it, and whatever else runs a delivery is made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pipelines.context import Context
from pipelines.model import StageName, Step
from pipelines.stages.bake import bake
from pipelines.stages.build import build
from pipelines.stages.canary import canary
from pipelines.stages.deploy import deploy
from pipelines.stages.finalize import finalize
from pipelines.stages.offline import offline
from pipelines.stages.promote import promote
from pipelines.stages.shadow import shadow
from pipelines.stages.smoke import smoke

Stage = Callable[[Context, Step], Awaitable[None]]
"""Does one step; returns when it is done, raises `Stopped` when the delivery must not go on."""

STAGES: Mapping[StageName, Stage] = {
    StageName.BUILD: build,
    StageName.DEPLOY: deploy,
    StageName.SMOKE: smoke,
    StageName.OFFLINE: offline,
    StageName.SHADOW: shadow,
    StageName.CANARY: canary,
    StageName.PROMOTE: promote,
    StageName.BAKE: bake,
    StageName.FINALIZE: finalize,
}
