"""`tidegate stage`, `approve` and `resume` where MLflow has versions and nothing serves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes.terminal import Tidegate

from registry.deliveries import MlflowDeliveries
from registry.ports import embedded_uri
from rollouts.local.locks import is_leased


@pytest.fixture
def opened(tidegate: Tidegate, registered: Path) -> str:
    """A delivery that asks before its second wave."""
    registered.write_text(registered.read_text() + "\napprovals: [{before: wave, wave: 2, by: names}]\n")
    said = tidegate("stage", "open", "delivery.yaml", "--key", "one")
    assert (said.code, said.err) == (0, "")
    return said.out.strip()


def test_a_delivery_is_opened_once_for_one_key_and_refused_to_others(
    tidegate: Tidegate, opened: str, name: str, state: Path
) -> None:
    again = tidegate("stage", "open", "delivery.yaml", "--key", "one", "--output", "json")
    assert again.json["delivery"] == opened
    assert again.json["version"] == "2"
    assert [step["id"] for step in again.json["steps"] if step["approvals"] == ["wave@2"]] == ["deploy@us-east-1"]
    other = tidegate("stage", "open", "delivery.yaml", "--key", "two")
    assert (other.code, other.out) == (2, "")
    carried = rf"delivery {opened} of {name} runs since \S+ \S+ UTC step by step, heard of at \S+ UTC"
    assert re.search(carried, other.err)
    closed = tidegate("stage", "close", "delivery.yaml", "--key", "two")
    assert closed.code == 0, closed.err
    assert is_leased(state)
    assert MlflowDeliveries(embedded_uri(state)).deliveries(name)[0].outcome is None


def test_a_step_does_nothing_for_the_one_who_has_another_key(tidegate: Tidegate, opened: str) -> None:
    """A pod of a workflow that was lost may come up late, when another workflow carries the delivery on."""
    said = tidegate("stage", "build", "--delivery", opened, "--key", "another")
    assert (said.code, said.out) == (2, "")
    assert f"delivery {opened} was carried on by somebody else since" in said.err
    # With its own it comes so far as to need a fleet.
    assert "no fleet runs here" in tidegate("stage", "build", "--delivery", opened, "--key", "one").err


def test_a_delivery_names_its_version(tidegate: Tidegate, registered: Path) -> None:
    said = tidegate("stage", "open", "delivery.yaml", "--version", "2", "--output", "json")
    assert said.json["version"] == "2"


def test_a_step_that_is_not_there_is_told_next_to_those_that_are(tidegate: Tidegate, opened: str) -> None:
    for step, complaint in (
        ("canary@mars/10", "`canary@mars/10` is no step of this delivery; one of: canary@eu-west-1/50,"),
        ("canry --region eu-west-1", "`canry` is no stage; one of: build, deploy"),
        ("canary --region mars --weight 10", "`canary@mars/10` is no step"),
        ("bake --wave 3", "`bake@3` is no step of this delivery; one of: bake@1, bake@2"),
    ):
        said = tidegate("stage", *step.split(), "--delivery", opened)
        assert (said.code, complaint in said.err) == (2, True), said.err


def test_an_answer_stands_in_the_ledger(tidegate: Tidegate, opened: str, name: str, state: Path) -> None:
    said = tidegate("approve", opened, "wave@2", "--by", "ann", "--reason", "looks fine")
    assert (said.code, said.out) == (0, f"approved: wave@2 of {name} 2 by ann (named, not proven): looks fine\n")
    event = MlflowDeliveries(embedded_uri(state)).events(opened)[-1]
    assert (event.step, event.kind, event.message) == ("wave@2", "approved", "ann (named, not proven): looks fine")
    assert event.data == {"by": "ann", "reason": "looks fine"}


def test_an_answer_that_helps_nobody_is_refused(tidegate: Tidegate, opened: str) -> None:
    assert "has no approval for `wave@3`" in tidegate("approve", opened, "wave@3", "--by", "ann").err
    assert "a refusal needs a reason" in tidegate("approve", opened, "wave@2", "--refuse", "--by", "ann").err


def test_what_is_alive_is_not_resumed_and_what_is_over_neither(tidegate: Tidegate, opened: str, state: Path) -> None:
    alive = tidegate("resume", opened)
    assert alive.code == 2
    assert f"delivery {opened} of" in alive.err
    MlflowDeliveries(embedded_uri(state)).join(opened).close("interrupted", "the test says so")
    over = f"delivery {opened} is over: interrupted: the test says so"
    for words in (f"resume {opened}", f"approve {opened} wave@2 --by ann", f"stage build --delivery {opened}"):
        said = tidegate(*words.split())
        assert (said.code, over in said.err) == (2, True)
    closed = tidegate("stage", "close", "--delivery", opened)
    assert (closed.code, closed.out) == (130, "interrupted: the test says so\n")


def test_a_delivery_that_nobody_opened_is_told(tidegate: Tidegate, registered: Path) -> None:
    said = tidegate("stage", "build", "--delivery", "a" * 32)
    assert (said.code, said.err) == (
        2,
        f"tidegate: there is no delivery {'a' * 32}; `tidegate status --last 20` lists them\n",
    )
