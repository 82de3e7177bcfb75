"""What a process is about to do is compared with what was settled when the delivery was opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.world import Steps, World, a_spec

from pipelines.authority.answering import BY_ALIAS, REQUESTED_BY, who_asks
from pipelines.errors import NotAsPlanned
from pipelines.events.state import plan_of, spec_file_of
from pipelines.model import Plan, Resolved
from pipelines.plan.planner import refuse_other_files, refuse_other_plan, settings_digest
from pipelines.spec.delivery import Delivery
from registry.model import Event
from tidegate.core.errors import ExitCode, NotGenuine

FILES = {"specs/delivery.yaml": "a" * 64, "golden.jsonl": "b" * 64}
PROMPTS = 12


def settled(spec: Delivery) -> Resolved:
    return Resolved(spec="a" * 64, gates=settings_digest(spec), files=FILES, images={"2": "r/llm@sha256:1"})


def a_plan(world: World) -> Plan:
    return world.plan.model_copy(update={"resolved": settled(world.spec)})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FILES | {"specs/delivery.yaml": "c" * 64}, "changed: specs/delivery.yaml"),
        (FILES | {"trust.yaml": "c" * 64}, "extra: trust.yaml"),
        ({"specs/delivery.yaml": "a" * 64}, "missing: golden.jsonl"),
    ],
)
def test_a_kept_file_that_was_swapped_is_refused_by_its_name(found: dict[str, str], said: str) -> None:
    with pytest.raises(NotAsPlanned, match=f"its kept files are not those it was opened with: {said}") as refusal:
        refuse_other_files(settled(a_spec()), found, "specs/delivery.yaml", "1")
    assert refusal.value.exit_code is ExitCode.NOT_GENUINE


def test_a_spec_that_is_none_of_the_kept_files_is_not_read() -> None:
    with pytest.raises(NotAsPlanned, match="is none of the files it was opened with"):
        refuse_other_files(settled(a_spec()), FILES, "secret.txt", "1")


def test_a_delivery_that_settled_nothing_is_not_gone_on_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(NotAsPlanned, match="is none of the files it was opened with"):
        refuse_other_files(world.plan.resolved, FILES, "specs/delivery.yaml", "1")
    with pytest.raises(NotAsPlanned, match="its gates ask for something else"):
        refuse_other_plan(world.plan, world.spec, prompts=PROMPTS, delivery="1")


def test_a_gate_that_asks_for_less_than_when_it_was_opened_is_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    lax = a_spec(errors="  errors: {max_increase: 99pp, min_requests: 20}")
    with pytest.raises(NotAsPlanned, match="its gates ask for something else"):
        refuse_other_plan(a_plan(world), lax, prompts=PROMPTS, delivery="1")


def test_a_plan_without_its_approvals_or_steps_is_found(tmp_path: Path) -> None:
    spec = a_spec(traffic="approvals: [{before: promote}]\ntraffic: {requests_per_second: 200}")
    world = World(tmp_path, spec)
    plan = a_plan(world)
    waived = plan.model_copy(update={"steps": tuple(s.model_copy(update={"approvals": ()}) for s in plan.steps)})
    with pytest.raises(NotAsPlanned, match="other approvals than its spec before promote@"):
        refuse_other_plan(waived, spec, prompts=PROMPTS, delivery="1")
    shorter = plan.model_copy(update={"steps": plan.steps[3:]})
    with pytest.raises(NotAsPlanned, match="its plan has other steps than its spec"):
        refuse_other_plan(shorter, spec, prompts=PROMPTS, delivery="1")


def test_a_plan_of_another_model_is_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = a_plan(world).model_copy(update={"version": world.plan.version.model_copy(update={"name": "other"})})
    with pytest.raises(NotAsPlanned, match="of another model"):
        refuse_other_plan(other, world.spec, prompts=PROMPTS, delivery="1")


async def test_what_was_settled_is_read_back_from_the_ledger(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.context().journal.opened(a_plan(world), spec_file="specs/delivery.yaml")
    assert plan_of(world.ledger.recorded()).resolved == settled(world.spec)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret.txt", "a/../../b"])
def test_a_plan_whose_spec_lies_outside_the_kept_files_is_refused_before_it_is_read(tmp_path: Path, path: str) -> None:
    world = World(tmp_path)
    Steps(world, tmp_path)
    first = world.ledger.events[0]
    forged: list[Event] = [first.model_copy(update={"data": {**first.data, "spec_file": path}})]
    with pytest.raises(NotGenuine, match="spec_file: Value error, a path of a file below the model's folder"):
        spec_file_of(forged)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "ann@laptop"),
        ({"GITHUB_ACTOR": "bob", "GITHUB_RUN_ID": "17"}, "bob, GitHub run 17"),
        ({"GITLAB_USER_LOGIN": "eve", "CI_JOB_ID": "3"}, "eve, GitLab run 3"),
        ({"GITLAB_USER_LOGIN": "eve"}, "eve, GitLab run unknown"),
        ({REQUESTED_BY: BY_ALIAS, "GITHUB_ACTOR": "bob"}, "alias moved, unknown"),
    ],
)
def test_who_asks_is_the_person_that_the_machine_knows(environment: dict[str, str], said: str) -> None:
    assert who_asks(environment, user="ann", host="laptop") == said
