"""What the doctor reads, with how few rights, and what becomes of a server that does not answer."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import NAME, REGION, Region, fleet

from rollouts.doctor.gather import required_access
from rollouts.errors import Unauthorized, Unreachable
from rollouts.kube.model import EVERYWHERE
from rollouts.kube.resources import HTTP_ROUTES, NODES, ROLLOUTS, SERVICES
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import access


def act_as_driver(region: Region) -> None:
    """With the Role and ClusterRole that are rendered, and nothing else."""
    release = Release(delivery=NAME, region=REGION, version="7", digest="7" * 64, image="engine")
    rendered = access(Site(fleet=region.spec, release=release, guard=region.guard))
    rules = {body["kind"]: body["rules"] for body in rendered if "rules" in body}
    region.api.access.allow_only(*rules["Role"], everywhere=tuple(rules["ClusterRole"]))


async def test_the_rights_that_are_rendered_are_all_that_a_delivery_needs(region: Region) -> None:
    act_as_driver(region)
    found = await region.examined(rights=True)
    assert [one.code for one in found] == ["not-looked-at"]


async def test_what_may_not_be_listed_is_asked_for_by_name(region: Region) -> None:
    act_as_driver(region)
    region.cluster.delete(HTTP_ROUTES, NAME)
    assert "route-missing" in await region.found()
    asked = {(call.verb, call.plural, call.name) for call in region.api.calls}
    assert {("get", HTTP_ROUTES.plural, NAME), ("get", SERVICES.plural, f"{NAME}-canary")} <= asked


async def test_nothing_is_changed(canary: Region) -> None:
    await canary.examined()
    verbs = {call.verb for call in canary.api.calls if call.plural != "selfsubjectaccessreviews"}
    assert verbs <= {"get", "list"}


async def test_what_a_controller_is_just_putting_right_is_not_told(canary: Region) -> None:
    halves = [{"name": f"{NAME}-{arm}", "port": 80, "weight": 50} for arm in ("stable", "canary")]

    def drift() -> None:
        """The route changes, and so does the Rollout, which is what its controller notices."""
        canary.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(backendRefs=halves))
        version = canary.cluster.get(ROLLOUTS, NAME)["metadata"]["resourceVersion"]
        canary.edit(ROLLOUTS, NAME, lambda it: it["metadata"].update(annotations={"at": version}))

    canary.at_last.append(drift)
    assert await canary.found() == {"weight-differs"}
    assert await canary.found(twice=True) == set()


async def test_what_stays_wrong_is_told_at_the_second_look(region: Region) -> None:
    region.api.clock_skew_seconds = 40
    assert await region.found(twice=True) == {"clock-skew"}


async def test_a_region_that_does_not_answer(region: Region) -> None:
    region.api.vanish()
    with pytest.raises(Unreachable):
        await region.examined()


async def test_a_region_that_does_not_know_us(region: Region) -> None:
    region.api.access.require("another-token")
    with pytest.raises(Unauthorized):
        await region.examined()


def test_every_right_is_a_question_of_its_own() -> None:
    questions = required_access(fleet(), NAME, REGION)
    assert len(set(questions)) == len(questions)
    status = [one for one in questions if one.resource == ROLLOUTS and one.subresource == "status"]
    assert [(one.verb, one.name, one.namespace) for one in status] == [("patch", NAME, None)]
    assert [(one.verb, one.namespace) for one in questions if one.resource == NODES] == [("list", EVERYWHERE)]


async def test_the_log_of_a_controller_is_read_as_far_as_it_speaks_of_trouble(region: Region) -> None:
    region.log = [
        'level=info msg="Reconciliation completed" rollout=support-llm',
        'level=error msg="roCtx.reconcile err rpc error: connection is shut down" rollout=other',
        'level=error msg="roCtx.reconcile err rpc error: connection is shut down" rollout=support-llm',
    ]
    (found,) = await region.examined()
    assert (found.code, found.evidence) == ("plugin-fails", (region.log[2],))
