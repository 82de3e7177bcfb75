"""Whose an object is, by what it says of itself."""

from __future__ import annotations

import pytest

from rollouts.manifests.ownership import foreign_object, last_writer, owner_of
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY


def service(*entries: Json, labels: Json | None = None, **metadata: object) -> Json:
    named: Json = {"name": "chat-stable", "namespace": "serving", "labels": labels or {}, **metadata}
    return {"kind": "Service", "metadata": {**named, "managedFields": list(entries)}}


def wrote(manager: str, time: str, *, field: str = "f:spec", **more: str) -> Json:
    return {"manager": manager, "time": time, "fieldsV1": {field: {}}, **more}


@pytest.mark.parametrize(
    ("live", "owner"),
    [
        pytest.param(service(), "it names no owner", id="nobody says"),
        pytest.param(
            service(
                wrote("helm", "2026-01-01T00:00:00Z"),
                labels={"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "chat"},
                annotations={"meta.helm.sh/release-name": "chat"},
            ),
            "managed by Helm release chat; last written by helm",
            id="Helm",
        ),
        pytest.param(
            service(
                wrote("argocd-controller", "2026-01-01T00:00:00Z"),
                annotations={"argocd.argoproj.io/tracking-id": "models:apps/Deployment:serving/chat"},
            ),
            "of Argo CD application models; last written by argocd-controller",
            id="Argo CD",
        ),
        pytest.param(service(labels={"kustomize.toolkit.fluxcd.io/name": "llm"}), "of Flux llm", id="Flux"),
        pytest.param(service(labels={DELIVERY: "other"}), "of delivery other", id="another delivery"),
        pytest.param(
            service(ownerReferences=[{"kind": "LLMService", "name": "chat", "controller": True}]),
            "controlled by LLMService chat",
            id="an operator",
        ),
        pytest.param(
            service(
                wrote("kubectl-edit", "2026-01-02T00:00:00Z"),
                wrote("helm", "2026-01-01T00:00:00Z"),
                wrote("kube-proxy", "2026-01-03T00:00:00Z", subresource="status"),
                wrote("kubectl-label", "2026-01-04T00:00:00Z", field="f:metadata"),
            ),
            "last written by kubectl-edit",
            id="who wrote its spec last",
        ),
    ],
)
def test_everything_that_says_whose_it_is_is_told(live: Json, owner: str) -> None:
    assert owner_of(live) == owner


def test_what_carries_the_deliverys_label_is_its_own() -> None:
    assert foreign_object(service(labels={DELIVERY: "chat"}), "chat") is None


def test_of_two_who_wrote_in_one_second_the_other_is_named() -> None:
    now = "2026-01-01T00:00:00Z"
    for entries in ([wrote("tidegate", now), wrote("helm", now)], [wrote("helm", now), wrote("tidegate", now)]):
        assert last_writer(service(*entries)) == "helm"
