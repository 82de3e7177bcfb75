"""A change of the engine alone is a delivery like any other: both engines have names, and a worse one is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.clusters.world import ClusterWorld, demo_on_clusters
from fakes.delivery.registry import FakeRegistry
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.events.state import plan_of
from pipelines.model import Ending, Plan
from pipelines.plan.engines import engine_changes, planned_engines, record_of, serving_engine
from pipelines.run.rollback_target import before
from pipelines.spec.delivery import Delivery
from registry.conventions import SERVING_TAG
from registry.model import DeliverySummary, EngineRecord, Serving, number_of
from tidegate.core.errors import UsageError
from tidegate.testing import START, write_tiny_model

SLOW = "engine: {vllm: {version: 0.32.0, args: {max-num-seqs: 1}}, compile: {mode: none}}"


def engines_of(now: Delivery, then: Delivery) -> tuple[EngineRecord, EngineRecord]:
    """Of the champion: the engine by `now`, and the one in production, which was delivered by `then`."""
    version = a_version(CHAMPION)
    serving = record_of(then, version, {})
    tags = {CHAMPION: Serving(now=serving).tag}
    wanted, kept = planned_engines(now, version, version, tags)
    assert kept == serving
    return wanted, serving


class TestNames:
    def test_an_engine_of_the_same_version_is_named_by_what_makes_it(self) -> None:
        wanted, serving = engines_of(a_spec(engine=SLOW), a_spec())
        assert serving.name == CHAMPION
        assert wanted.name == f"{CHAMPION}-{wanted.fingerprint[:8]}"
        assert number_of(wanted.name) == CHAMPION

    def test_what_changes_is_told(self) -> None:
        wanted, serving = engines_of(a_spec(engine=SLOW), a_spec())
        assert list(engine_changes(serving, wanted)) == ["vllm.args.max-num-seqs: default -> 1"]

    def test_the_same_engine_is_nothing_to_deliver(self) -> None:
        with pytest.raises(UsageError, match="there is nothing to deliver"):
            engines_of(a_spec(), a_spec())

    def test_what_a_build_accepts_makes_no_other_engine(self) -> None:
        strict = a_spec(engine="engine: {vllm: {version: 0.32.0}, compile: {mode: none, tolerance: 0.5}}")
        with pytest.raises(UsageError, match="there is nothing to deliver"):
            engines_of(strict, a_spec())

    def test_an_engine_that_nobody_recorded_cannot_be_compared(self) -> None:
        version = a_version(CHAMPION)
        with pytest.raises(UsageError, match="nobody has recorded which engine serves it"):
            planned_engines(a_spec(), version, version, {CHAMPION: {}})

    def test_another_model_version_keeps_its_number_for_a_name(self) -> None:
        tags = {CHAMPION: {}, CHALLENGER: {}}
        wanted, serving = planned_engines(a_spec(), a_version(CHALLENGER), a_version(CHAMPION), tags)
        assert (wanted.name, serving) == (CHALLENGER, None)

    def test_a_record_that_anybody_has_spoilt_is_none(self) -> None:
        assert Serving.of({SERVING_TAG: "[]"}) == Serving.of({SERVING_TAG: "no JSON"}) == Serving()


def changed(plan: Plan, now: Delivery, then: Delivery) -> Plan:
    wanted, serving = engines_of(now, then)
    return plan.model_copy(update={"version": plan.champion, "engine": wanted, "champion_engine": serving})


class OnClusters(ClusterWorld):
    """The demo's champion, whose engine alone changes."""

    @property
    def plan(self) -> Plan:
        plan = super().plan
        slow = self.spec.engine.model_copy(
            update={"vllm": self.spec.engine.vllm.model_copy(update={"args": {"max-num-seqs": 1}})}
        )
        return changed(plan, self.spec.model_copy(update={"engine": slow}), self.spec)

    def canary_is(self, *, ttft: float = 0.1) -> str:
        """Everybody's numbers, the canary's as slow as that; returns its name."""
        name = self.plan.on_trial
        self.evidence.serves("stable", name)
        for role in ("shadow", "canary"):
            self.evidence.serves(role, name, ttft=ttft)
        return name


@pytest.fixture
def clusters(tmp_path: Path) -> OnClusters:
    return OnClusters(tmp_path, demo_on_clusters(("eu-west-1",)))


async def test_an_engine_that_is_as_good_is_delivered_and_both_are_recorded(clusters: OnClusters) -> None:
    name = clusters.canary_is()
    result = await clusters.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert set(clusters.stable_versions().values()) == {name}
    for region in clusters.regions.values():
        state = await region.fleet.observe()
        assert state.previous
        assert state.previous.version == CHAMPION
    assert clusters.registry.champion == CHAMPION
    serving = Serving.of(clusters.registry.marks)
    kept = [serving.now, serving.before]
    assert [each.name for each in kept if each] == [name, CHAMPION]
    first = clusters.recorder.events[0]
    assert first.message.startswith(f"engine {name} of models:/support-llm/1 to ")
    assert first.message.endswith("; champion is version 1")
    # As a later process reads it.
    read = plan_of(clusters.recorder.events)
    assert (read.on_trial, read.in_production) == (name, CHAMPION)


async def test_an_engine_that_is_slower_is_taken_back_by_the_gates(clusters: OnClusters) -> None:
    name = clusters.canary_is(ttft=0.5)
    result = await clusters.deliver()
    assert result.ending is Ending.ROLLED_BACK, result.reason
    assert "latency" in result.reason
    assert set(clusters.stable_versions().values()) == {CHAMPION}
    assert SERVING_TAG not in clusters.registry.marks
    assert clusters.registry.marks["tidegate.reason"].startswith(f"engine {name}: ")


def test_a_rollback_knows_both_names_of_an_unfinished_delivery() -> None:
    from rollouts.model import EngineSet, RegionPhase, RegionState, Role

    last = DeliverySummary(
        id="1", name="m", version="7", champion="7", on_trial="7-aa", in_production="7", started=START, host="h",
        pid=1, heartbeat=START,
    )  # fmt: skip
    stable = EngineSet(role=Role.STABLE, version="7-aa", digest="", url="", ready=True)
    state = RegionState(region="eu", phase=RegionPhase.STEADY, entry="", stable=stable)
    assert before({"eu": state}, last) == {"eu": "7"}


def test_a_fleet_serves_the_recorded_engine_whatever_the_spec_says_by_now(tmp_path: Path) -> None:
    registry = FakeRegistry()
    version = registry.register("support-llm", write_tiny_model(tmp_path / "model"))
    first = serving_engine(a_spec(), version, registry, print)
    assert serving_engine(a_spec(engine=SLOW), version, registry, print) == first
