"""A plan as `tidegate plan` prints it: every step, what its gates need, how long it takes."""

from __future__ import annotations

import re

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.plan.planner import make_plan
from pipelines.spec.delivery import Delivery
from tidegate.cli.views.plan import plan_lines, plan_markdown, refusal_markdown

ONE_REGION = "regions: {waves: [[eu-west-1]], bake: 90s}"


@pytest.fixture
def lines() -> list[str]:
    return list(
        plan_lines(make_plan(a_spec(regions=ONE_REGION), a_version(CHALLENGER), a_version(CHAMPION), prompts=12))
    )


def test_every_step_is_a_line_and_every_further_gate_another(lines: list[str]) -> None:
    assert [line.split()[0] for line in lines[2:-3] if not line.startswith(" ")] == [
        "build", "deploy@eu-west-1", "smoke@eu-west-1", "offline@eu-west-1", "shadow@eu-west-1",
        "canary@eu-west-1/10", "canary@eu-west-1/50", "promote@eu-west-1", "bake@1", "finalize",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines if line.startswith(" ")] == ["errors", "agreement", "errors", "errors"]


def test_a_gate_says_when_it_passes_when_it_catches_its_margin_and_what_it_sees(lines: list[str]) -> None:
    (shadow,) = [line for line in lines if line.startswith("shadow")]
    assert re.search(r"latency +\d+ pairs in \d+ s +20 % slower +\d+ pairs in .* from \d+ % slower$", shadow), shadow
    (errors, *_) = [line for line in lines if line.strip().startswith("errors")]
    assert re.search(r"errors +[\d,]+ requests in \d+ s +1 pp more +[\d,]+ requests in .* from 0.\d+ pp more$", errors)


def test_a_golden_set_says_how_many_prompts_could_prove_anything(lines: list[str]) -> None:
    (offline,) = [line for line in lines if line.startswith("offline")]
    assert re.search(r"quality +10 prompts +all wrong +10 prompts +from 0\.\d+ lower$", offline), offline


def test_a_region_that_is_like_another_is_told_once() -> None:
    lines = plan_lines(make_plan(a_spec(), a_version(CHALLENGER), a_version(CHAMPION), prompts=12))
    (shadow,) = [line for line in lines if line.startswith("shadow@us-east-1")]
    assert shadow.split()[-2:] == ["as", "shadow@eu-west-1"]


def test_unknown_traffic_is_said_and_not_guessed() -> None:
    spec = a_spec(regions=ONE_REGION, traffic="")
    lines = list(plan_lines(make_plan(spec, a_version(CHALLENGER), a_version(CHAMPION), prompts=12)))
    assert "Nobody says how many users there are (`traffic.requests_per_second`)" in lines[-1]
    (canary,) = [line for line in lines if line.startswith("canary@eu-west-1/10")]
    assert re.search(r"\? +latency +\d+ requests +20 % slower +\d+ requests +-$", canary), canary


def test_what_the_times_rest_on_is_said_last(lines: list[str]) -> None:
    assert lines[-2].startswith("Half of all versions are decided by then, 8 of 10 within 1.5 times as long.")
    assert "0.5 % of requests fail" in lines[-1]


def a_comment(spec: Delivery, *more: str) -> list[str]:
    plan = make_plan(spec, a_version(CHALLENGER), a_version(CHAMPION), prompts=12)
    return plan_markdown(plan, "llm/delivery.yaml", more).splitlines()


def test_a_comment_can_be_found_again_and_says_first_what_goes_where() -> None:
    lines = a_comment(a_spec())
    assert lines[:2] == ["<!-- tidegate plan llm/delivery.yaml -->", "### models:/support-llm/2 → eu-west-1, us-east-1"]
    assert re.match(r"About \d.* as soon as it can\. The champion is version 1\.$", lines[3])


def test_a_comment_has_the_rows_of_the_plan_in_a_table() -> None:
    lines = a_comment(a_spec())
    table = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {8}
    assert [line.split("|")[1].strip() for line in table[2:6]] == [
        "build", "deploy@eu-west-1", "smoke@eu-west-1", "offline@eu-west-1",
    ]  # fmt: skip
    (like,) = [line for line in table if line.startswith("| shadow@us-east-1 ")]
    assert "| as | shadow@eu-west-1 |" in like


def test_a_comment_says_who_is_asked_and_what_it_costs() -> None:
    spec = a_spec(traffic="approvals: [{before: finalize}]\ntraffic: {requests_per_second: 200}")
    lines = a_comment(spec, "eu-west-1: 2 engines serve")
    assert "- finalize waits for an approval of finalize" in lines
    assert "- eu-west-1: 2 engines serve" in lines


def test_a_comment_says_that_there_is_no_plan() -> None:
    lines = refusal_markdown("llm/delivery.yaml", "a\n`b` | c").splitlines()
    assert lines == [
        "<!-- tidegate plan llm/delivery.yaml -->", "### No plan for llm/delivery.yaml", "", "    a", "    `b` | c",
    ]  # fmt: skip
