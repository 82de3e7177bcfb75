"""Objects of others under a delivery's names are the first thing that the doctor tells."""

from __future__ import annotations

from fakes.clusters.doctor_region import NAME, NAMESPACE, Region
from fakes.clusters.region import moved_in

from rollouts.doctor.model import Severity
from rollouts.doctor.queries import EvidenceQuery
from rollouts.kube.resources import NETWORK_POLICIES, POD_MONITORS
from rollouts.manifests.conventions import BEFORE_ADOPTION
from tidegate.core.model import Json


async def test_a_release_of_somebody_else_is_told_object_by_object() -> None:
    region = Region(deploy=False)
    moved_in(region.cluster, NAME, NAMESPACE)
    region.wait(300)
    finding = next(each for each in await region.examined() if each.code == "not-ours")
    assert finding.severity is Severity.ERROR
    assert finding.what == f"4 objects of others where {NAME} would have its own"
    assert [each.partition(" in ")[0] for each in finding.evidence] == [
        f"Service {NAME}-stable", f"Service {NAME}-canary", f"HTTPRoute {NAME}", f"Rollout {NAME}",
    ]  # fmt: skip
    assert all("is not tidegate's (managed by Helm release chat; last written by " in each for each in finding.evidence)


async def test_nothing_else_is_said_of_a_release_that_could_be_adopted() -> None:
    """Nobody scrapes engines of a delivery that was never there, and who wrote theirs is their own affair."""
    region = Region(deploy=False)
    region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(rate(requests_total[5m]))"),)
    region.prometheus.unknown = {"requests_total"}
    moved_in(region.cluster, NAME, NAMESPACE)
    region.wait(300)
    findings = {each.code: each for each in await region.examined()}
    assert findings["not-ours"].remediation.startswith("take a Rollout over while it serves with `tidegate rollout")
    assert findings["no-engines-yet"].severity is Severity.NOTE
    assert not {"metric-unknown", "query-without-samples", "reverted-by"} & set(findings)


async def test_nobody_scrapes_an_adopted_rollout_before_its_first_delivery(region: Region) -> None:
    metadata = {"name": f"{NAME}-engines", "namespace": NAMESPACE}
    monitor: Json = {
        "apiVersion": POD_MONITORS.api_version,
        "kind": POD_MONITORS.kind,
        "metadata": metadata,
        "spec": {},
    }
    region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(rate(requests_total[5m]))"),)
    region.prometheus.unknown = {"requests_total"}
    region.rollout(lambda it: it["metadata"]["annotations"].update({BEFORE_ADOPTION: "{}"}))
    region.monitors = (monitor,)
    findings = {each.code: each for each in await region.examined()}
    assert findings["no-engines-yet"].evidence == ("of gate errors",)
    assert "metric-unknown" not in findings
    region.put(monitor)
    assert "metric-unknown" in await region.found()


async def test_so_is_an_object_of_the_set_up(region: Region) -> None:
    region.edit(NETWORK_POLICIES, NAME, lambda body: body["metadata"].pop("labels"))
    finding = next(each for each in await region.examined() if each.code == "not-ours")
    assert finding.what == f"1 object of others where {NAME} would have its own"
    assert finding.evidence[0].startswith(f"NetworkPolicy {NAME} in {NAMESPACE} is not tidegate's")
