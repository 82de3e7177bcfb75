"""A plan as `tidegate plan` prints it: every step, what its gates need, how long it takes."""

from __future__ import annotations

import pytest
from fakes.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.plan import make_plan
from tidegate.cli.commands.plan import print_plan

ONE_REGION = "regions: {waves: [[eu-west-1]], bake: 90s}"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_plan(make_plan(a_spec(regions=ONE_REGION), a_version(CHALLENGER), a_version(CHAMPION), prompts=12))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_first_line_says_what_goes_where(lines: list[str]) -> None:
    assert lines[0] == "models:/support-llm/2 -> eu-west-1; champion is version 1"


def test_every_step_is_a_line(lines: list[str]) -> None:
    assert [line.split()[0] for line in lines[2:-1]] == [
        "build", "deploy@eu-west-1", "smoke@eu-west-1", "offline@eu-west-1", "shadow@eu-west-1",
        "canary@eu-west-1/10", "canary@eu-west-1/50", "promote@eu-west-1", "bake@1", "finalize",
    ]  # fmt: skip


def test_a_gate_says_its_sample_and_the_time_to_get_it(lines: list[str]) -> None:
    (shadow,) = [line for line in lines if line.startswith("shadow")]
    assert shadow.split(maxsplit=1)[1] == "20 s        latency 20 (20 s), errors 20 (2 s), agreement 10 (10 s)"
    (offline,) = [line for line in lines if line.startswith("offline")]
    assert offline.endswith("quality 12")


def test_long_times_are_told_in_minutes(lines: list[str]) -> None:
    (bake,) = [line for line in lines if line.startswith("bake")]
    assert bake.split(maxsplit=1)[1] == "1 min 30 s"
    assert lines[-1] == "about 3 min 15 s when every gate answers as soon as it can"
