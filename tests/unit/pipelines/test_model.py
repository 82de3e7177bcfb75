"""The nouns of a delivery: what a step is called, how an ending is told."""

from __future__ import annotations

import pytest

from gates.model import GateOutcome
from pipelines.events.payloads import VerdictPayload
from pipelines.model import ENDING_OF, EXIT_CODES, Ending, PlanStep, StageName
from pipelines.run.regions import both_arms
from rollouts.model import RegionPhase, RegionState
from tidegate.core.errors import ExitCode, OutsideError


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (PlanStep(stage=StageName.BUILD), "build"),
        (PlanStep(stage=StageName.DEPLOY, wave=1, region="eu-west-1"), "deploy@eu-west-1"),
        (PlanStep(stage=StageName.CANARY, wave=1, region="eu-west-1", weight=25), "canary@eu-west-1/25"),
        (PlanStep(stage=StageName.BAKE, wave=2), "bake@2"),
        (PlanStep(stage=StageName.GIT, wave=2), "git@2"),
        (PlanStep(stage=StageName.BAKE, wave=2, region="us-east-1"), "bake@2"),
        (PlanStep(stage=StageName.FINALIZE), "finalize"),
    ],
)
def test_a_step_is_called_by_what_it_does_and_where(step: PlanStep, name: str) -> None:
    assert step.id == name


def test_only_a_pass_delivers() -> None:
    assert [outcome for outcome in GateOutcome if ENDING_OF[outcome] is Ending.DELIVERED] == [GateOutcome.PASS]


def test_every_outcome_and_every_ending_leads_to_an_exit_code() -> None:
    assert set(ENDING_OF) == set(GateOutcome)
    assert set(EXIT_CODES) == set(Ending)
    assert [ending for ending in Ending if EXIT_CODES[ending] is ExitCode.DELIVERED] == [Ending.DELIVERED]


def test_a_region_without_engines_has_no_arms_to_ask() -> None:
    state = RegionState(region="eu-west-1", phase=RegionPhase.EMPTY, entry="http://eu", problem="the proxy is down")
    with pytest.raises(OutsideError) as caught:
        both_arms(state)
    assert (caught.value.message, caught.value.detail) == (
        "eu-west-1: there is no stable engine",
        "the proxy is down",
    )
    assert "`tidegate fleet up` starts the champion" in str(caught.value)


def test_a_verdict_is_read_back_from_its_name_and_from_its_number() -> None:
    assert VerdictPayload.model_validate({"gate": "errors", "outcome": "fail"}).outcome is GateOutcome.FAIL
    assert VerdictPayload.model_validate({"gate": "errors", "outcome": 0}).outcome is GateOutcome.PASS
