"""What the service account of each kind of region may do: all that its page says, and nothing else.

A real API server is asked about every verb: of what it needs, of its namesakes, and of what it must not reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import product

import pytest
import yaml
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.others import kubectl
from cluster.quickstart_story import NAME
from cluster.referenced_story import by_reference, spec_of, two_backends
from cluster.worker_sets import ENGINE

from rollouts.kube.client import KubeClient
from rollouts.kube.resources import ACCESS_REVIEWS, LEADER_WORKER_SETS, RESOURCES
from rollouts.manifests.conventions import driver
from tidegate.core.model import Json

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
CARRIED = {"leases": "create", f"leases/{NAME}-carrier": "get update", f"httproutes/{NAME}": "get patch update"}
ROLLOUT = CARRIED | {f"rollouts/{NAME}": "get patch", f"rollouts/{NAME}/status": "patch", "replicasets": "list"}
POOLS = {f"inferencepools/{NAME}-{arm}": "get patch" for arm in ("stable", "canary")}
ROUTE = CARRIED | {"pods": "list", "endpointslices": "list"}
REVIEWS = ACCESS_REVIEWS.model_copy(update={"plural": "subjectaccessreviews", "kind": "SubjectAccessReview"})


def peers(things: str, verbs: str) -> Mapping[str, str]:
    return {f"{things}/{NAME}-{peer}": verbs for peer in ("blue", "green")}


def pools_of_sets() -> Json:
    fleet = two_backends(ENGINE, LEADER_WORKER_SETS.kind)
    fleet["peers"] = {name: each | {"kind": "InferencePool"} for name, each in fleet["peers"].items()}
    return fleet


KINDS: Mapping[str, tuple[Json, Mapping[str, str]]] = {
    "Rollout": (by_reference(""), ROLLOUT | POOLS | {"pods": "list"}),
    "workloadRef": (
        by_reference(f"{NAME}-engines"),
        ROLLOUT | POOLS | {"pods": "list", f"deployments/{NAME}-engines": "get patch"},
    ),
    "Services of Deployments": (two_backends(), ROUTE | peers("services", "get") | peers("deployments", "get patch")),
    "pools of LeaderWorkerSets": (
        pools_of_sets(),
        ROUTE | peers("inferencepools", "get") | peers("leaderworkersets", "get patch"),
    ),
}


LONG = ("workloadRef", "pools of LeaderWorkerSets")


@pytest.mark.parametrize("kind", [pytest.param(each, marks=pytest.mark.long if each in LONG else ()) for each in KINDS])
def test_an_account_may_do_what_its_page_says_and_nothing_else(regions: Bed, kind: str) -> None:
    fleet, wanted = KINDS[kind]
    region = next(iter(regions.around.clusters))
    with regions.apart("rights-" + kind.lower().replace(" ", "-")) as there:
        model = DeliveredModel(there, NAME, [[region]])
        model.spec.write_text(yaml.safe_dump(spec_of(there, region, "team/vllm:v1", fleet)))
        kubectl(there, region, "apply", "-f", "-", given=model.start("rollout", "render", "delivery.yaml").finish().out)
        assert there.ask(region, lambda client: granted(client, there.namespace, tuple(wanted))) == {
            f"{verb} {thing}" for thing, verbs in wanted.items() for verb in verbs.split()
        }


async def granted(client: KubeClient, namespace: str, things: tuple[str, ...]) -> set[str]:
    """Of all kinds and of the named objects, what that account may: `verb thing`, with its namespace if another."""
    # Everybody may ask what they may; and what is created has no name yet.
    plurals = {each.plural for each in RESOURCES if each is not ACCESS_REVIEWS}
    named = {thing for thing in things if "/" in thing} | {
        "pods/any/exec",
        "pods/any/proxy",
        "services/any/proxy",
        f"deployments/{NAME}/scale",
    }
    asked = {
        *product(VERBS, (namespace, "default"), plurals),
        *(
            (verb, where, thing)
            for verb, where, thing in product(VERBS, (namespace, "default"), named)
            if verb != "create"
        ),
    }

    async def one(verb: str, where: str, thing: str) -> str:
        plural, name, subresource, *_ = [*thing.split("/"), "", ""]
        group = next(each.group for each in RESOURCES if each.plural == plural)
        attributes = {"namespace": where, "verb": verb, "group": group, "resource": plural}
        review = {
            "user": f"system:serviceaccount:{namespace}:{driver(NAME)}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": attributes | {"name": name, "subresource": subresource},
        }
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": review}
        may = (await client.create(REVIEWS, body))["status"]["allowed"]
        return (f"{verb} {thing}" if where == namespace else f"{verb} {thing} of {where}") if may else ""

    return set(await asyncio.gather(*(one(*each) for each in asked))) - {""}
