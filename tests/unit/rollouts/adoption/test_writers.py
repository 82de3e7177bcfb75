"""Tools that would write adopted objects back, by the marks and field managers of the objects."""

from __future__ import annotations

import yaml
from fakes.clusters.region import NAME, NAMESPACE, a_release

from rollouts.adoption.writers import Tool, returning_writers
from tidegate.core.model import Json


def managed(*managers: str, labels: Json | None = None, annotations: Json | None = None) -> list[Json]:
    """The stable's Service and the Rollout, with specs that these have written."""
    entries = [{"manager": each, "operation": "Apply", "fieldsV1": {"f:spec": {}}} for each in managers]
    found = (a_release(NAME, NAMESPACE)[0], a_release(NAME, NAMESPACE)[-1])
    marks = {"labels": labels or {}, "annotations": annotations or {}, "managedFields": entries}
    return [{**body, "metadata": {**body["metadata"], **marks}} for body in found]


def test_helm_is_known_by_its_release() -> None:
    (found,) = returning_writers(a_release(NAME, NAMESPACE))
    assert (found.tool, found.name, len(found.objects)) == (Tool.HELM, "Helm release chat", 4)
    assert "helm.sh/resource-policy: keep" in found.advice


def test_argo_cd_gets_what_to_paste() -> None:
    (found,) = returning_writers(managed(annotations={"argocd.argoproj.io/tracking-id": "chat:apps/Rollout:x/y"}))
    assert (found.tool, found.name) == (Tool.ARGO_CD, "Argo CD application chat")
    pasted = yaml.safe_load(found.paste)
    assert pasted["syncPolicy"] == {"syncOptions": ["RespectIgnoreDifferences=true"]}
    assert [(each["group"], each["kind"], each["name"]) for each in pasted["ignoreDifferences"]] == [
        ("", "Service", f"{NAME}-stable"),
        ("argoproj.io", "Rollout", NAME),
    ]
    assert all("/spec" in each["jsonPointers"] for each in pasted["ignoreDifferences"])


def test_others_are_known_by_who_wrote_the_spec_last() -> None:
    found = returning_writers(managed("argocd-controller", "kubectl-client-side-apply"))
    assert [(each.tool, each.name) for each in found] == [
        (Tool.ARGO_CD, "argocd-controller"),
        (Tool.OTHER, "kubectl-client-side-apply"),
    ]
    flux = returning_writers(managed(labels={"kustomize.toolkit.fluxcd.io/name": "serving"}))
    assert [(each.tool, each.name) for each in flux] == [(Tool.FLUX, "Flux serving")]


def test_controllers_and_ourselves_write_nothing_back() -> None:
    assert returning_writers(managed("rollouts-controller", "kube-controller-manager", "tidegate")) == ()
