"""What the doctor reads, with how few rights, how often it looks, and what becomes of a server that does not answer."""

from __future__ import annotations

from fakes.clusters.doctor_region import GUARD_IMAGE, NAME, NAMESPACE, REGION, Region, canary
from fakes.clusters.region import moved_in

from rollouts.doctor.model import EvidenceQuery, metrics_of
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import guard
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.access import access


def act_as_driver(region: Region) -> None:
    """With the Role that is rendered, and nothing else."""
    release = Release(delivery=NAME, region=REGION, version="7", digest="7" * 64, image="engine")
    release = release.model_copy(update={"guard": GUARD_IMAGE, "driver": True})
    rendered = access(Site(fleet=region.spec, release=release))
    rules = {body["kind"]: body["rules"] for body in rendered if "rules" in body}
    region.api.access.allow_only(*rules["Role"], everywhere=tuple(rules.get("ClusterRole", ())))


async def test_the_rights_that_are_rendered_are_all_that_a_delivery_needs() -> None:
    region = Region()
    act_as_driver(region)
    assert await region.examined(rights=True) == ()


async def test_what_may_not_be_listed_is_asked_for_by_name() -> None:
    region = Region()
    act_as_driver(region)
    region.cluster.delete(HTTP_ROUTES, NAME)
    assert "route-missing" in await region.found()
    asked = {(call.verb, call.plural, call.name) for call in region.api.calls}
    assert {("get", HTTP_ROUTES.plural, NAME), ("get", SERVICES.plural, f"{NAME}-canary")} <= asked


async def test_what_may_not_be_read_is_never_a_finding() -> None:
    region = Region()
    region.cluster.delete(DEPLOYMENTS, guard(NAME))
    region.cluster.delete(HTTP_ROUTES, NAME)
    readable = ["rollouts", "replicasets", "pods"]
    region.api.access.allow_only({"apiGroups": ["*"], "verbs": ["get", "list"], "resources": readable})
    (found,) = await region.examined()
    assert found.code == "not-looked-at"
    hidden = set(found.evidence[0].split(", "))
    assert {"services", "httproutes", "deployments", "events"} <= hidden


async def test_a_right_that_is_missing() -> None:
    region = Region()
    read = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    region.api.access.allow_only(read, everywhere=(read,))
    (found,) = await region.examined(rights=True)
    assert (found.code, f"may not patch rollouts/status {NAME}" in found.evidence) == ("access-denied", True)


async def test_a_release_of_somebody_else_is_found_object_by_object() -> None:
    """Nobody scrapes engines of a delivery that was never there, and who wrote theirs is their own affair."""
    region = Region(deploy=False)
    region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(rate(requests_total[5m]))"),)
    region.prometheus.unknown = {"requests_total"}
    moved_in(region.cluster, NAME, NAMESPACE)
    region.wait(300)
    findings = {each.code: each for each in await region.examined()}
    assert not {"query-never-answered", "query-without-samples", "reverted-by"} & set(findings)
    found = findings["not-ours"]
    assert found.what == f"4 objects of others where {NAME} would have its own"
    assert [each.partition(" in ")[0] for each in found.evidence] == [
        f"Service {NAME}-stable", f"Service {NAME}-canary", f"HTTPRoute {NAME}", f"Rollout {NAME}",
    ]  # fmt: skip
    assert all("is not tidegate's (managed by Helm release chat; last written by " in each for each in found.evidence)


async def test_nothing_is_changed() -> None:
    region = canary()
    region.api.calls.clear()
    await region.examined()
    verbs = {call.verb for call in region.api.calls if call.plural != "selfsubjectaccessreviews"}
    assert verbs == {"get", "list"}


async def test_what_a_controller_is_just_correcting_is_not_reported() -> None:
    region = canary()
    halves = [{"name": f"{NAME}-{arm}", "port": 80, "weight": 50} for arm in ("stable", "canary")]

    def drift() -> None:
        """The route changes, and so does the Rollout, which is what its controller notices."""
        region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(backendRefs=halves))
        version = region.cluster.get(ROLLOUTS, NAME)["metadata"]["resourceVersion"]
        region.edit(ROLLOUTS, NAME, lambda it: it["metadata"].update(annotations={"at": version}))

    region.at_last.append(drift)
    assert await region.found() == {"weight-differs"}
    assert await region.found(twice=True) == set()


async def test_what_stays_wrong_is_reported_at_the_second_look() -> None:
    region = Region()
    region.api.clock_skew_seconds = 40
    assert await region.found(twice=True) == {"clock-skew"}


def test_metrics_of_a_query() -> None:
    query = 'sum(rate(vllm:e2e_count[5m])) / sum(rate({__name__="all_requests"}[5m])) + vllm:e2e_count'
    assert metrics_of(query) == ("vllm:e2e_count", "all_requests")
    assert metrics_of(r"rate(a{path=~`/[^/]+\.bin`}[5m])") == ("a",)
    assert metrics_of("sum(rate(") == ()
