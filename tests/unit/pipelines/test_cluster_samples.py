"""Samples of users' requests from pods of clusters: asked for by a ConfigMap, taken through the API server's proxy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from fakes.clusters.region import NAME, ClusterRegion, an_image
from fakes.clusters.sampled_pods import SampledPods
from fakes.clusters.world import REGIONS, demo_on_clusters
from fakes.kube.requests import Fault, Meanwhile

from engine_images.samples.key import WHERE, WHERE_IT_ENDS, SampleKey
from pipelines.adapters.samples import (
    AGAIN_SECONDS,
    FOR_SECONDS,
    ClusterSamples,
    opened,
)
from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import SamplesSpec
from rollouts.cluster.samples import UNHEARD_SECONDS, RegionSamples
from rollouts.kube.resources import CONFIG_MAPS, PODS
from rollouts.manifests.conventions import PORT, samples_request
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import access
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import EngineSet
from tidegate.core.errors import OutsideError, Refused

REGION = REGIONS[0]
SHARES: Mapping[str, float] = {"1": 0.05, "2": 0.5}


class Trial:
    """One region with a stable and a canary, several pods each, and who takes samples there as the driver."""

    def __init__(self, folder: Path, spec: Delivery) -> None:
        assert isinstance(spec.fleet, ArgoFleetSpec)
        self.region = ClusterRegion(REGION, spec=spec.fleet, render=rendering(spec, spec.fleet, REGION))
        self._folder = folder
        self.samples = self.of_another_process()

    async def begin(self) -> None:
        await self.region.fleet.deploy(an_image("1"))
        state = await self.region.fleet.deploy(an_image("2"))
        assert state.stable and state.canary
        self.stable, self.canary = state.stable, state.canary
        self.pods = SampledPods(self.region, self._folder)
        release = Release(
            delivery=NAME, region=REGION, version="2", digest="2" * 64, image="engine", samples=True, driver=True
        )
        rules = {
            body["kind"]: body["rules"]
            for body in access(Site(fleet=self.region.spec, release=release))
            if "rules" in body
        }
        self.region.api.access.allow_only(*rules["Role"])

    def of_another_process(self) -> ClusterSamples:
        cluster, time = self.region.client(retry_seconds=0), self.region.time
        there = RegionSamples(REGION, cluster, NAME, time, patience_seconds=60)
        return ClusterSamples({REGION: there}, SamplesSpec(), time)

    async def asked(self) -> None:
        await self.samples.keep(REGION, SHARES)
        self.pods.bring()

    async def taken(self, engine: EngineSet) -> list[str]:
        found = await self.samples.take(REGION, engine)
        assert found.problem == ""
        return sorted(each.prompt for each in found.samples)


def spec(*, samples: bool = True) -> Delivery:
    found = demo_on_clusters((REGION,))
    return found.model_copy(update={"samples": SamplesSpec() if samples else None})


@pytest.fixture
async def trial(tmp_path: Path) -> Trial:
    made = Trial(tmp_path, spec())
    await made.begin()
    return made


async def test_what_all_pods_of_an_arm_have_kept_is_taken_once(trial: Trial) -> None:
    await trial.asked()
    stable = trial.pods.of("1")
    assert len(stable) > 1
    for pod in stable:
        trial.pods.answers(pod, f"asked of {pod}")
    assert await trial.taken(trial.stable) == [f"asked of {pod}" for pod in stable]
    assert await trial.taken(trial.stable) == []
    assert (await trial.samples.take(REGION, trial.canary)).complete


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"samples": None}, {"samples": "a"}, {"samples": [5]}, {"samples": ["?"]}, {"samples": ["AAAA"]}],
)
def test_an_engine_that_answers_oddly_is_no_defect_of_the_delivery(answer: object) -> None:
    with pytest.raises(OutsideError):
        opened(SampleKey(), [answer])


async def test_nobody_else_takes_or_ends_anything(trial: Trial) -> None:
    await trial.asked()
    (pod, *_) = trial.pods.of("1")
    trial.pods.answers(pod, "mine")
    other = trial.of_another_process()
    await other.keep(REGION, SHARES)
    # Its pods have not heard of it: they keep for the one before.
    await other.end(REGION)
    assert trial.pods.held() == 1
    assert await trial.taken(trial.stable) == ["mine"]


async def test_at_the_end_nothing_is_left_anywhere(trial: Trial) -> None:
    await trial.asked()
    for pod in trial.pods.engines:
        trial.pods.answers(pod, "left over")
    await trial.samples.end(REGION)
    assert trial.pods.held() == 0
    assert not any(engine.on for engine in trial.pods.engines.values())
    assert trial.region.cluster.find(CONFIG_MAPS, samples_request(NAME)) is None
    # A kubelet that was slow brings what is gone already: nothing begins again.
    for engine in trial.pods.engines.values():
        engine.look()
        assert not engine.on


async def test_the_next_weight_asks_again_with_a_key_of_its_own(trial: Trial) -> None:
    await trial.asked()
    await trial.samples.end(REGION)
    trial.pods.bring()
    await trial.asked()
    (pod, *_) = trial.pods.of("2")
    trial.pods.answers(pod, "again")
    assert await trial.taken(trial.canary) == ["again"]


@pytest.mark.long
async def test_it_is_written_again_before_engines_stop_and_not_each_time(trial: Trial) -> None:
    await trial.asked()
    for _ in range(23):
        await trial.region.time.sleep(15)
        await trial.samples.keep(REGION, SHARES)
        trial.pods.bring()
        assert all(engine.on for engine in trial.pods.engines.values())
    written = [call for call in trial.region.api.calls if (call.verb, call.plural) == ("patch", "configmaps")]
    assert len(written) == 1 + int(23 * 15 // (FOR_SECONDS - AGAIN_SECONDS))


async def test_a_pod_that_went_with_its_samples_is_no_error_and_one_that_came_is_asked(trial: Trial) -> None:
    await trial.asked()
    before = set(trial.pods.of("1"))
    gone, stays, *_ = trial.pods.of("1")
    trial.pods.answers(gone, "lost")
    trial.pods.answers(stays, "kept")
    between = Meanwhile(lambda _: trial.region.cluster.delete(PODS, gone))
    trial.region.api.faults.add(Fault(between, verbs=("create",), name=f"{gone}:{PORT}"))
    assert await trial.taken(trial.stable) == ["kept"]
    await trial.region.time.sleep(60)
    trial.pods.bring()
    (came,) = set(trial.pods.of("1")) - before
    trial.pods.answers(came, "new")
    assert await trial.taken(trial.stable) == ["new"]


async def test_one_that_has_not_heard_is_given_the_time_that_kubelets_take(trial: Trial) -> None:
    await trial.samples.keep(REGION, SHARES)
    found = await trial.samples.take(REGION, trial.stable)
    assert (found.samples, found.problem, found.complete) == ((), "", False)
    await trial.region.time.sleep(UNHEARD_SECONDS)
    found = await trial.samples.take(REGION, trial.stable)
    assert "has not heard that it should" in found.problem


async def test_pods_are_asked_by_the_token_alone(trial: Trial) -> None:
    await trial.asked()
    asked: list[str] = []
    for pod in trial.pods.of("1"):
        trial.region.api.pods[pod] = lambda request, serves=trial.region.api.pods[pod]: (
            asked.append(f"{request.path} {request.headers}") or serves(request)
        )
    await trial.samples.take(REGION, trial.stable)
    await trial.samples.end(REGION)
    assert {line.partition(" ")[0] for line in asked} == {WHERE, WHERE_IT_ENDS}
    assert all("authorization" not in line for line in asked)


async def test_engines_that_were_made_without_it_are_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, spec(samples=False))
    await trial.begin()
    with pytest.raises(Refused, match="of version 1 cannot keep samples: it was made for a spec without"):
        await trial.samples.require(REGION, "1")


def test_only_a_spec_that_asks_for_it_gives_pods_the_means_and_the_driver_the_rights() -> None:
    def text(*, samples: bool) -> str:
        chosen = spec(samples=samples)
        assert isinstance(chosen.fleet, ArgoFleetSpec)
        release = Release(
            delivery=NAME, region=REGION, version="2", digest="2" * 64, image="engine", samples=samples, driver=True
        )
        objects = [*rendering(chosen, chosen.fleet, REGION)(an_image("2"))]
        objects += access(Site(fleet=chosen.fleet, release=release))
        return yaml.safe_dump_all(objects)

    asked, plain = text(samples=True), text(samples=False)
    for word in ("--samples", f"name: {NAME}-samples", "pods/proxy"):
        assert (word in asked, word in plain) == (True, False), word
