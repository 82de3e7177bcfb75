"""The one list of stages: the local runner walks it, and whatever else runs a delivery is made from it."""

from __future__ import annotations

from pipelines.model import StageName
from pipelines.run.context import Stages
from pipelines.run.stages.live import bake, canary
from pipelines.run.stages.load import load
from pipelines.run.stages.probes import offline, smoke
from pipelines.run.stages.rollout import build, deploy, finalize, promote
from pipelines.run.stages.shadow import shadow

STAGES: Stages = {
    StageName.BUILD: build,
    StageName.DEPLOY: deploy,
    StageName.SMOKE: smoke,
    StageName.OFFLINE: offline,
    StageName.LOAD: load,
    StageName.SHADOW: shadow,
    StageName.CANARY: canary,
    StageName.PROMOTE: promote,
    StageName.BAKE: bake,
    StageName.FINALIZE: finalize,
}
