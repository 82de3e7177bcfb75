"""What a fleet on Kubernetes does beyond the promises of every fleet: the traps of Argo Rollouts, one by one."""

from __future__ import annotations

import asyncio

import pytest
from fakes.clusters.region import NAME, ClusterRegion, a_fleet, an_image, on_trial
from fakes.kube.refusal import Refusal
from fakes.kube.requests import Fault, Refuse
from fakes.kube.store import Event

from rollouts.cluster.model import version_labels
from rollouts.errors import FleetError, NotPossible, Overruled
from rollouts.kube.resources import MANAGER, PODS, REPLICA_SETS, ROLLOUTS, SERVICES, Resource
from rollouts.manifests.conventions import TrafficRouter, stable_service
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import access
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, ROLE
from tidegate.core.process import notes_to
from tidegate.testing import versions


@pytest.fixture
def region() -> ClusterRegion:
    return ClusterRegion()


async def promoted(region: ClusterRegion) -> None:
    await on_trial(region)
    await region.fleet.promote()


def pods_of(region: ClusterRegion, version: str) -> list[str]:
    return [each["metadata"]["name"] for each in region.cluster.list(PODS, labels=f"tidegate.dev/version={version}")]


CHARTS_IMAGE = "registry.example/chart@sha256:" + "a" * 64


def another_image(region: ClusterRegion) -> Json:
    """A merge patch as Helm 3 sends one: the list of containers whole, labels as they are."""
    containers = [dict(each) for each in region.rollout["spec"]["template"]["spec"]["containers"]]
    containers[0]["image"] = CHARTS_IMAGE
    return {"spec": {"template": {"spec": {"containers": containers}}}}


async def test_a_version_that_is_on_trial_is_not_served_from_another_image(region: ClusterRegion) -> None:
    await on_trial(region)
    other = an_image("2").model_copy(update={"image": "evil.example/miner@sha256:" + "6" * 64})
    with pytest.raises(NotPossible, match="version 2 is here already, from another image"):
        await region.fleet.deploy(other)


async def test_a_trial_that_somebody_ends_while_its_engines_start_did_not_fail_by_itself(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("1"))
    region.time.call_later(2, region.abort_by_hand)
    with pytest.raises(Overruled, match="aborted in the region itself"):
        await region.fleet.deploy(an_image("2"))


async def test_a_trial_that_its_analysis_ends_while_its_engines_start_failed(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("1"))
    region.time.call_later(2, lambda: region.abort("too many errors"))
    with pytest.raises(FleetError, match="aborted in the region itself") as failed:
        await region.fleet.deploy(an_image("2"))
    assert not isinstance(failed.value, Overruled)


class TestWeights:
    async def test_a_weight_without_a_step_is_refused_with_those_there_are(self, region: ClusterRegion) -> None:
        await on_trial(region)
        with pytest.raises(NotPossible) as caught:
            await region.fleet.shift(33)
        assert caught.value.hint == "its steps have 0 %, 5 %, 25 %, 50 %"

    async def test_a_gateway_that_does_not_heed_weights_is_found_out(self) -> None:
        """argo-rollouts#4569: half of all users on the canary, whatever the weight."""
        region = ClusterRegion(users_per_second=20)
        await on_trial(region)
        region.users.obeys_weights = False
        with pytest.raises(FleetError, match=r"gives the canary 5 % of users, and 50 % of \d+ requests reached it"):
            await region.fleet.shift(5)

    async def test_a_region_without_users_proves_nothing_and_is_not_held_up_for_ever(self) -> None:
        region = ClusterRegion(users_per_second=0.01)
        await on_trial(region)
        assert (await region.fleet.shift(5)).weight == 5


class TestCopies:
    async def test_filters_of_others_stay(self, region: ClusterRegion) -> None:
        await on_trial(region)
        other: Json = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x-debug"]}}
        region.edit_route(lambda route: route["spec"]["rules"][0].update(filters=[other]))
        await region.fleet.mirror(100)
        await region.fleet.mirror(0)
        assert region.route["spec"]["rules"][0]["filters"] == [other]

    async def test_a_gateway_that_does_not_copy_is_found_out(self) -> None:
        """rollouts-plugin-trafficrouter-gatewayapi#32: success is said, and nothing is copied."""
        region = ClusterRegion(users_per_second=5)
        await on_trial(region)
        region.users.obeys_mirror = False
        with pytest.raises(FleetError, match=r"mirrors 100 % of requests, and of \d+ none reached the canary"):
            await region.fleet.mirror(100)

    @pytest.mark.parametrize("way", ["promote", "rollback"])
    async def test_they_end_with_the_trial(self, region: ClusterRegion, way: str) -> None:
        await on_trial(region)
        await region.fleet.mirror(100)
        await (region.fleet.promote() if way == "promote" else region.fleet.rollback("1"))
        assert "filters" not in region.route["spec"]["rules"][0]


class TestWaysBack:
    async def test_after_a_promotion_the_very_pods_that_waited_serve_again(self, region: ClusterRegion) -> None:
        await promoted(region)
        warm = pods_of(region, "1")
        begun = region.time.elapsed
        await region.fleet.rollback("1")
        assert pods_of(region, "1") == warm
        assert region.time.elapsed - begun < 4
        assert len(region.cluster.list(REPLICA_SETS)) == 2

    async def test_of_two_that_are_kept_warm_the_one_before_the_last_serves_again(self, region: ClusterRegion) -> None:
        await promoted(region)
        await region.fleet.deploy(an_image("3"))
        assert (await region.fleet.promote()).warm == ("1", "2")
        warm = pods_of(region, "1")
        await region.fleet.rollback("1")
        assert (region.versions(), pods_of(region, "1")) == (("1", "1"), warm)

    @pytest.mark.parametrize("seconds", [0.05, 3, 6])
    async def test_a_promotion_that_is_on_its_way_is_taken_back_whenever_that_is_asked(self, seconds: float) -> None:
        region = ClusterRegion(spec=a_fleet("eu-west-1", replicas=4, canary={"replicas": 1}))
        await on_trial(region)
        promotion = asyncio.ensure_future(region.fleet.promote())
        await region.time.sleep(seconds)
        promotion.cancel()
        await asyncio.gather(promotion, return_exceptions=True)
        begun = region.time.monotonic()
        state = await region.fleet.rollback("1")
        assert (state.phase, versions(state)) == (RegionPhase.STEADY, ("1", None, None))
        assert region.versions() == ("1", "1")
        assert region.time.monotonic() - begun < 15
        await region.time.sleep(60)
        assert versions(await region.fleet.observe()) == ("1", None, None)

    async def test_an_abort_leaves_no_rollout_that_asks_for_what_it_does_not_serve(self, region: ClusterRegion) -> None:
        await on_trial(region)
        serving = pods_of(region, "1")
        await region.fleet.shift(50)
        await region.fleet.rollback("1")
        assert region.rollout["status"]["phase"] == "Healthy"
        labels = region.rollout["spec"]["template"]["metadata"]["labels"]
        assert labels["tidegate.dev/version"] == "1"
        # The role is the controller's: asked for by us, it would be another template, with new pods.
        assert ROLE not in labels
        assert pods_of(region, "1") == serving

    async def test_a_version_that_was_stable_not_long_ago_is_tried_again_from_the_start(
        self, region: ClusterRegion
    ) -> None:
        """Inside `rollbackWindow` Argo Rollouts skips every step of a template that it knows."""
        await promoted(region)
        state = await region.fleet.deploy(an_image("1"))
        assert (state.phase, versions(state), state.weight) == (RegionPhase.TRIAL, ("2", "1", None), 0)

    async def test_a_rollout_held_by_hand_does_not_hold_users_on_the_canary(self, region: ClusterRegion) -> None:
        await on_trial(region, weight=25)
        region.edit_rollout(lambda rollout: rollout["spec"].update(paused=True))
        assert versions(await region.fleet.rollback("1")) == ("1", None, None)


class TestAControllerThatIsSilent:
    """Users are on the stable at once whether it lives or not, and nobody says that a dead one did anything."""

    @pytest.mark.parametrize("traffic", TrafficRouter)
    async def test_users_and_copies_are_taken_back_in_the_moment_of_the_operation(self, traffic: str) -> None:
        region = ClusterRegion(spec=a_fleet("eu-west-1", traffic=traffic))
        await on_trial(region, weight=50)
        await region.fleet.mirror(30)
        region.simulation.controller_down = True
        begun = region.time.elapsed
        state = await region.fleet.rollback("1")
        assert region.splits[-2:] == [(50, 30), (0, 0)]
        assert region.split_at[-1] - begun < 1
        assert (state.weight, state.mirror) == (0, 0)
        assert state.stable and state.stable.version == "1"

    async def test_who_serves_and_what_to_do_is_told_then_and_later(self, region: ClusterRegion) -> None:
        await on_trial(region, weight=50)
        region.simulation.controller_down = True
        then = await region.fleet.rollback("1")
        assert then.phase is RegionPhase.DEGRADED
        assert "all users are on version 1, and the Argo Rollouts controller has not reacted" in (then.problem or "")
        assert "tidegate rollback" in (then.problem or "")
        await region.time.sleep(300)
        assert (await region.fleet.observe()).problem == then.problem

    async def test_it_dies_after_it_aborted(self, region: ClusterRegion) -> None:
        await on_trial(region, weight=50)
        region.cluster.on_change(lambda event: _die_once_aborted(region, event.after))
        state = await region.fleet.rollback("1")
        assert (state.weight, state.phase) == (0, RegionPhase.DEGRADED)
        assert "all users are on version 1, and the Argo Rollouts controller has not reacted" in (state.problem or "")

    @pytest.mark.parametrize(("traffic", "status"), [("gateway-api", 409), ("gateway-api", 503), ("istio", 500)])
    async def test_a_route_that_cannot_be_written_at_once_is_written_a_moment_later(
        self, traffic: str, status: int
    ) -> None:
        region = ClusterRegion(spec=a_fleet("eu-west-1", traffic=traffic))
        await on_trial(region, weight=50)
        region.simulation.controller_down = True
        plural = "virtualservices" if region.spec.traffic is TrafficRouter.ISTIO else "httproutes"
        refusal = Refusal(status, "", "somebody was faster, or nobody is there")
        region.api.faults.add(Fault(Refuse(refusal), verbs=("update",), plural=plural))
        begun = region.time.elapsed
        await region.fleet.rollback("1")
        assert region.splits[-1] == (0, 0)
        assert region.split_at[-1] - begun < 1.5

    async def test_an_abort_that_is_refused_does_not_hold_users_on_the_canary(self, region: ClusterRegion) -> None:
        await on_trial(region, weight=50)
        refusal = Refusal(403, "Forbidden", "rollouts/status is not for you")
        region.api.faults.add(Fault(Refuse(refusal), verbs=("patch",), plural="rollouts", times=None))
        begun = region.time.elapsed
        with pytest.raises(FleetError):
            await region.fleet.rollback("1")
        assert (0, 0) in region.splits[-2:]
        assert region.split_at[-1] - begun < 1

    async def test_a_controller_that_sees_the_abort_a_minute_late_holds_nobody(self, region: ClusterRegion) -> None:
        """After an outage of the API server its watches come back late (client-go's back-off)."""
        await on_trial(region, weight=50)
        region.simulation.catches_up_after = 60
        region.simulation.controller_down = True
        region.simulation.controller_down = False
        begun = region.time.elapsed
        state = await region.fleet.rollback("1")
        assert region.split_at[-1] - begun < 1
        assert "all users are on version 1" in (state.problem or "")
        await region.time.sleep(60)
        state = await region.fleet.rollback("1")
        assert (state.phase, versions(state), state.weight) == (RegionPhase.STEADY, ("1", None, None), 0)


def _die_once_aborted(region: ClusterRegion, body: Json) -> None:
    if body.get("kind") == "Rollout" and (body.get("status") or {}).get("abortedAt"):
        region.simulation.controller_down = True


class TestEnginesThatDoNotCome:
    async def test_a_quota_without_room_for_them_is_told_while_they_are_waited_for(self) -> None:
        region, lines = ClusterRegion(), list[str]()
        await region.fleet.deploy(an_image("1"))

        def full(verb: str, kind: Resource, _: Json) -> None:
            if (verb, kind.plural) == ("create", PODS.plural):
                raise Refusal(403, "Forbidden", "exceeded quota: gpus")

        region.cluster.admission.append(full)
        region.time.call_later(70, region.abort_by_hand)
        with notes_to(lines.append), pytest.raises(Overruled):
            await region.fleet.deploy(an_image("2"))
        assert lines == [f"{region.region}: version 2 waits: 403 Forbidden: exceeded quota: gpus"]

    async def test_a_canary_that_dies_on_its_way_to_a_weight_is_not_waited_for(self, region: ClusterRegion) -> None:
        await on_trial(region)
        begun = region.time.elapsed
        region.time.call_later(0.06, lambda: region.simulation.crash("2", last_words="Xid 79: fallen off the bus"))
        state = await region.fleet.shift(50)
        assert state.weight == 0
        assert state.canary
        assert not state.canary.ready
        assert "fallen off the bus" in (state.canary.problem or "")
        assert region.time.elapsed - begun < 15

    async def test_a_canary_that_lost_its_users_is_not_ready_though_its_engines_are_up_again(
        self, region: ClusterRegion
    ) -> None:
        """The controller sends nobody to a canary without a ready pod: nobody else set that weight."""
        await on_trial(region)
        assert (await region.fleet.shift(50)).weight == 50
        region.simulation.crash("2")
        await region.time.sleep(10)
        region.simulation.controller_down = True
        region.simulation.crash("2", on=False)
        await region.time.sleep(600)
        state = await region.fleet.observe()
        assert state.weight == 0
        assert state.canary
        assert not state.canary.ready
        assert "Argo Rollouts sends its users to the stable" in (state.canary.problem or "")

    async def test_a_plugin_that_does_not_load_is_no_progress(self, region: ClusterRegion) -> None:
        await region.fleet.deploy(an_image("1"))
        region.simulation.plugin_broken = True
        with pytest.raises(FleetError, match="is stuck") as caught:
            await region.fleet.deploy(an_image("2"))
        assert "traffic plugin" in str(caught.value.hint)

    async def test_a_rollout_that_somebody_holds_is_left_alone(self, region: ClusterRegion) -> None:
        await region.fleet.deploy(an_image("1"))
        region.edit_rollout(lambda rollout: rollout["spec"].update(paused=True))
        with pytest.raises(NotPossible, match="is paused by hand"):
            await region.fleet.deploy(an_image("2"))

    async def test_who_holds_a_trial_holds_its_promotion(self, region: ClusterRegion) -> None:
        await on_trial(region, weight=50)
        region.edit_rollout(lambda rollout: rollout["spec"].update(paused=True))
        with pytest.raises(NotPossible, match="is paused by hand"):
            await region.fleet.promote()
        assert (region.rollout["spec"]["paused"], region.splits[-1]) == (True, (50, 0))


class TestWhatOthersAskFor:
    async def test_who_takes_the_rollout_away_is_named(self, region: ClusterRegion) -> None:
        await on_trial(region)
        assert (await region.fleet.observe()).foreign_change is None
        region.apply_over(an_image("1"), manager="argocd-controller")
        at = region.time.now()
        await region.time.sleep(30)
        told = (await region.fleet.observe()).foreign_change
        assert told
        assert (told.version, told.reason) == (
            "1",
            f"somebody changed Rollout support-llm: argocd-controller at {at:%H:%M:%S} UTC asks for version 1 again",
        )

    async def test_who_changes_another_part_of_the_template_is_not_to_blame(self, region: ClusterRegion) -> None:
        await on_trial(region)
        region.apply_over(an_image("1"), manager="argocd-controller")
        await region.time.sleep(30)
        region.edit_rollout(lambda rollout: rollout["spec"]["template"]["metadata"]["annotations"].update(note="x"))
        await region.time.sleep(30)
        told = (await region.fleet.observe()).foreign_change
        assert told
        assert "argocd-controller at " in told.reason

    async def test_it_is_told_once_the_controller_acted_on_it_or_had_the_time(self, region: ClusterRegion) -> None:
        """An abort that is sent in between is lost."""
        await on_trial(region)
        region.simulation.controller_down = True
        region.apply_over(an_image("1"), manager="argocd-controller")
        assert (await region.fleet.observe()).foreign_change is None
        await region.time.sleep(15)
        assert (await region.fleet.observe()).foreign_change

    async def test_who_applies_the_same_version_takes_nothing_away(self, region: ClusterRegion) -> None:
        await on_trial(region)
        region.apply_over(an_image("2"), manager="argocd-controller")
        await region.fleet.shift(50)
        assert (await region.fleet.observe()).foreign_change is None

    async def test_an_engine_that_is_changed_below_its_version_is_theirs(self, region: ClusterRegion) -> None:
        await on_trial(region)
        region.cluster.patch(ROLLOUTS, NAME, another_image(region), manager="helm")
        await region.time.sleep(30)
        told = (await region.fleet.observe()).foreign_change
        assert told and told.version == "", told
        assert "helm at " in told.reason
        assert told.reason.endswith("asks for another pod template of version 2")
        await region.fleet.rollback("1")
        assert (await region.fleet.observe()).foreign_change is None
        # Another attempt of the same version is ours again.
        await region.fleet.deploy(an_image("2"))
        assert (await region.fleet.observe()).foreign_change is None

    async def test_one_that_is_changed_before_the_controller_sees_ours_is_not_taken_for_it(
        self, region: ClusterRegion
    ) -> None:
        await region.fleet.deploy(an_image("1"))

        def at_once(event: Event) -> None:
            if event.kind.plural == ROLLOUTS.plural and event.manager == MANAGER and event.before:
                template = event.after["spec"]["template"]
                if version_labels(template)[0] == "2" and template["spec"]["containers"][0]["image"] != CHARTS_IMAGE:
                    stop()
                    region.cluster.patch(ROLLOUTS, NAME, another_image(region), manager="helm")

        stop = region.cluster.on_change(at_once)
        with pytest.raises(Overruled, match=f"helm changed Rollout {NAME}: version 2 runs {CHARTS_IMAGE}"):
            await region.fleet.deploy(an_image("2"))

    async def test_nobody_waits_for_a_version_that_somebody_else_took_away(self, region: ClusterRegion) -> None:
        await region.fleet.deploy(an_image("1"))
        region.time.call_later(2, lambda: region.apply_over(an_image("1"), manager="argocd-controller"))
        begun = region.time.elapsed
        with pytest.raises(NotPossible, match=r"argocd-controller at .* asks for version 1 again"):
            await region.fleet.deploy(an_image("2"))
        assert region.time.elapsed - begun < 10


class TestWhatIsOthers:
    async def test_selectors_stay_narrow_when_services_are_repeated(self, region: ClusterRegion) -> None:
        await region.fleet.deploy(an_image("1"))
        widened: list[str] = []
        region.cluster.on_change(
            lambda event: (
                widened.append(event.name)
                if event.kind.plural == SERVICES.plural and POD_TEMPLATE_HASH not in event.after["spec"]["selector"]
                else None
            )
        )
        await region.fleet.deploy(an_image("2"))
        await region.fleet.promote()
        await region.fleet.deploy(an_image("3"))
        assert widened == []
        stable = region.cluster.get(SERVICES, stable_service(NAME))
        assert stable["spec"]["selector"][POD_TEMPLATE_HASH] == region.rollout["status"]["stableRS"]

    async def test_the_number_of_engines_is_the_autoscalers(self) -> None:
        region = ClusterRegion(spec=a_fleet("eu-west-1", autoscale={"min_replicas": 2, "max_replicas": 8}))
        await region.fleet.deploy(an_image("1"))
        region.edit_rollout(lambda rollout: rollout["spec"].update(replicas=5))
        await region.time.sleep(10)
        await region.fleet.deploy(an_image("2"))
        assert region.rollout["spec"]["replicas"] == 5

    async def test_the_rights_that_are_rendered_suffice_for_every_operation(self, region: ClusterRegion) -> None:
        release = Release(delivery=NAME, region=region.region, version="1", digest="d", image="i", driver=True)
        site = Site(fleet=region.spec, release=release)
        region.api.access.allow_only(*next(each["rules"] for each in access(site) if each["kind"] == "Role"))
        await promoted(region)
        await region.fleet.rollback("1")
        await region.fleet.deploy(an_image("3"))
        await region.fleet.mirror(100)
        await region.fleet.shift(25)
        await region.fleet.rollback("1")
