"""What goes over the wire, before it goes."""

from __future__ import annotations

import pytest

from rollouts.errors import NotPossible
from rollouts.kube import requests, resources
from rollouts.kube.model import EVERYWHERE, AccessReview, PatchKind, Request
from rollouts.kube.resources import (
    ACCESS_REVIEWS,
    DEPLOYMENTS,
    HTTP_ROUTES,
    NODES,
    PODS,
    RESOURCES,
    ROLLOUTS,
    resource_of,
)

ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "support-llm"}}


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (requests.get(ROLLOUTS, "a"), "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts/a"),
        (requests.get(PODS, "a", "other"), "/api/v1/namespaces/other/pods/a"),
        (requests.get(NODES, "n1"), "/api/v1/nodes/n1"),
        (requests.collection(PODS), "/api/v1/namespaces/llm/pods"),
        (requests.collection(PODS, namespace=EVERYWHERE), "/api/v1/pods"),
        (requests.collection(NODES, namespace="x"), "/api/v1/nodes"),
        (
            requests.patch(ROLLOUTS, "a", {}, subresource="status"),
            "/apis/argoproj.io/v1alpha1/namespaces/llm/rollouts/a/status",
        ),
        (
            requests.get(resources.ROLES, "system:x/y"),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/llm/roles/system:x%2Fy",
        ),
    ],
)
def test_where_a_request_goes(request_: Request, path: str) -> None:
    assert request_.path("llm") == path


def test_an_apply_is_strict_and_says_who_owns_the_fields() -> None:
    asked = requests.apply(ROLLOUT)
    assert (asked.method, asked.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert asked.query == {"fieldManager": "tidegate", "fieldValidation": "Strict"}
    sure = requests.apply(ROLLOUT, force=True, dry_run=True)
    assert sure.query == asked.query | {"force": "true", "dryRun": "All"}


def test_a_body_keeps_its_order_and_its_letters() -> None:
    asked = requests.patch(ROLLOUTS, "a", {"status": {"b": None, "a": "köln"}})
    assert asked.content == '{"status":{"b":null,"a":"köln"}}'.encode()
    assert asked.content_type == PatchKind.MERGE.value
    assert requests.get(ROLLOUTS, "a").content is None
    assert requests.get(ROLLOUTS, "a").content_type is None
    assert requests.create(ROLLOUTS, ROLLOUT).content_type == "application/json"


def test_selectors_that_say_nothing_are_not_sent() -> None:
    assert requests.collection(PODS).query == {}
    assert requests.collection(PODS, labels="a=b", fields="metadata.name=c").query == {
        "labelSelector": "a=b",
        "fieldSelector": "metadata.name=c",
    }


def test_pages_keep_the_selectors() -> None:
    whole = requests.collection(PODS, labels="a=b")
    assert requests.list_page(whole, "next").query == {"labelSelector": "a=b", "limit": "500", "continue": "next"}


@pytest.mark.parametrize(
    ("question", "attributes"),
    [
        (
            AccessReview(verb="patch", resource=ROLLOUTS, name="a", subresource="status"),
            {
                "namespace": "llm",
                "verb": "patch",
                "group": "argoproj.io",
                "version": "v1alpha1",
                "resource": "rollouts",
                "subresource": "status",
                "name": "a",
            },
        ),
        (
            AccessReview(verb="list", resource=NODES),
            {"verb": "list", "version": "v1", "resource": "nodes"},
        ),
        (
            AccessReview(verb="list", resource=PODS, namespace=EVERYWHERE),
            {"verb": "list", "version": "v1", "resource": "pods"},
        ),
    ],
)
def test_a_question_of_access(question: AccessReview, attributes: dict[str, str]) -> None:
    asked = requests.review(question, "llm")
    assert asked.path("llm") == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert isinstance(asked.body, dict)
    assert asked.body["spec"] == {"resourceAttributes": attributes}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.plural)
def test_every_known_resource_is_found_by_its_manifest(resource: resources.Resource) -> None:
    assert resource_of({"apiVersion": resource.api_version, "kind": resource.kind}) == resource


def test_a_manifest_of_another_version_goes_to_that_version() -> None:
    found = resource_of({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "HTTPRoute"})
    assert found == HTTP_ROUTES.model_copy(update={"version": "v1beta1"})


@pytest.mark.parametrize(
    "manifest",
    [{}, {"kind": "Rollout"}, {"apiVersion": "apps/v1", "kind": "Rollout"}, {"apiVersion": "v1", "kind": "Deployment"}],
)
def test_an_unknown_kind_is_no_guess(manifest: dict[str, str]) -> None:
    with pytest.raises(NotPossible, match="does not know"):
        resource_of(manifest)


def test_names_are_unlike() -> None:
    assert len({(resource.group, resource.plural) for resource in RESOURCES}) == len(RESOURCES)
    assert {DEPLOYMENTS, ACCESS_REVIEWS} <= set(RESOURCES)
