"""What Argo CD's Application and Flux's Kustomization say of a commit, as their documentation has their status."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kube.cluster import FakeCluster

from pipelines.repository import ToolInCluster, said_by_argo_cd, said_by_flux
from pipelines.spec.git import ArgoCdSpec
from rollouts.kube.resources import APPLICATIONS
from tidegate.core.model import Json

A, B = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("status", "revisions", "in_sync", "words"),
    [
        ({}, (), False, "it has not compared anything yet"),
        ({"sync": {"status": "Synced", "revision": A}}, (A,), True, "Synced"),
        ({"sync": {"status": "OutOfSync", "revisions": [A, B]}}, (A, B), False, "OutOfSync"),
        (
            {
                "sync": {"status": "OutOfSync", "revision": A},
                "operationState": {"phase": "Failed", "message": "one or more\nobjects failed"},
            },
            (A,),
            False,
            "OutOfSync; one or more objects failed",
        ),
        (
            {"sync": {"status": "Unknown"}, "conditions": [{"type": "ComparisonError", "message": "no such path"}]},
            (),
            False,
            "Unknown; no such path",
        ),
    ],
)
def test_argo_cd(status: Json, revisions: tuple[str, ...], in_sync: bool, words: str) -> None:
    found = said_by_argo_cd("llm", {"status": status})
    assert (found.who, found.revisions, found.in_sync, found.words) == (
        "Argo CD application llm", revisions, in_sync, words,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("last", "ready", "revisions", "in_sync"),
    [
        (None, None, (), False),
        (f"main@sha1:{A}", "True", (A,), True),
        (f"main/{A}", "True", (A,), True),
        (f"main@sha1:{A}", "False", (A,), False),
    ],
)
def test_flux(last: str | None, ready: str | None, revisions: tuple[str, ...], in_sync: bool) -> None:
    conditions = [{"type": "Ready", "status": ready, "message": "Applied"}] if ready else []
    found = said_by_flux("llm", {"status": {"lastAppliedRevision": last, "conditions": conditions}})
    assert (found.who, found.revisions, found.in_sync) == ("Flux kustomization llm", revisions, in_sync)


async def test_each_region_has_its_own() -> None:
    cluster = FakeCluster(namespace="argocd")
    body = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind, "metadata": {"name": "llm-eu"}}
    made = cluster.create(APPLICATIONS, body)
    cluster.update_status(APPLICATIONS, {**made, "status": {"sync": {"status": "Synced", "revision": A}}})
    asked: list[str] = []

    class Reader:
        async def close(self) -> None:
            asked.append("closed")

        async def get(self, resource: object, name: str, *, namespace: str) -> Json:
            assert resource is APPLICATIONS
            return cluster.get(APPLICATIONS, name, namespace=namespace)

    def cluster_of(region: str) -> Any:
        asked.append(region)
        return Reader()

    found = await ToolInCluster(ArgoCdSpec(application="llm-{region}"), cluster_of).applied("eu")
    assert (found.revisions, asked) == ((A,), ["eu", "closed"])
