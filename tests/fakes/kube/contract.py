"""What every Kubernetes API server promises, as far as tidegate relies on it: the fake's, and a real cluster's.

Inherit the classes and bring two fixtures: `client`, an open `KubeClient` of a namespace in which these tests may do
anything, and `marked`, a label's value that no other test run in that namespace has.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rollouts.errors import Conflict, Invalid, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import CONFIG_MAPS, DEPLOYMENTS, ROLLOUTS, SERVICES, PatchKind
from tidegate.core.model import Json

MARK = "tidegate.dev/contract"

Note = Callable[..., Json]


@pytest.fixture
def note(marked: str) -> Note:
    """Makes a ConfigMap: a name and its data."""

    def make(name: str, **data: str) -> Json:
        metadata = {"name": f"{marked}-{name}", "labels": {MARK: marked, "name": name}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    return make


@pytest.fixture
def scene(marked: str) -> Json:
    """A Deployment that starts nothing: no replicas."""
    labels = {MARK: marked}
    pod = {"containers": [{"name": "engine", "image": "registry.example/engine:1", "ports": [{"containerPort": 80}]}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{marked}-scene", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@pytest.fixture
def service(marked: str) -> Json:
    """A Service of pods that nobody starts."""
    spec = {"selector": {MARK: marked}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    metadata = {"name": f"{marked}-service", "labels": {MARK: marked}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


class WritingContract:
    """Versions, conflicts, names: API conventions, "Concurrency Control and Consistency"."""

    async def test_what_is_created_is_there_with_a_version_and_an_id(self, client: KubeClient, note: Note) -> None:
        created = await client.create(CONFIG_MAPS, note("a", x="1"))
        assert {"uid", "resourceVersion", "creationTimestamp"} <= set(created["metadata"])
        assert await client.get(CONFIG_MAPS, created["metadata"]["name"]) == created

    async def test_a_write_from_an_old_version_is_a_conflict(self, client: KubeClient, note: Note) -> None:
        old = await client.create(CONFIG_MAPS, note("a", x="1"))
        await client.replace(CONFIG_MAPS, old | {"data": {"x": "2"}})
        with pytest.raises(Conflict) as caught:
            await client.replace(CONFIG_MAPS, old | {"data": {"x": "3"}})
        assert caught.value.reason == "Conflict"
        assert (await client.get(CONFIG_MAPS, old["metadata"]["name"]))["data"] == {"x": "2"}

    async def test_a_write_that_changes_nothing_makes_no_version(self, client: KubeClient, note: Note) -> None:
        one = await client.create(CONFIG_MAPS, note("a", x="1"))
        same = await client.patch(CONFIG_MAPS, one["metadata"]["name"], {"data": {"x": "1"}})
        assert same["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]

    async def test_a_dry_run_answers_and_stores_nothing(self, client: KubeClient, note: Note) -> None:
        one = await client.create(CONFIG_MAPS, note("a", x="1"))
        name = one["metadata"]["name"]
        tried = await client.apply(note("a", x="2"), force=True, dry_run=True)
        assert tried["data"] == {"x": "2"}
        assert await client.get(CONFIG_MAPS, name) == one


class PatchingContract:
    """Merge patch (RFC 7386) and JSON patch (RFC 6902) as the API server reads them."""

    async def test_a_merge_patch_sets_removes_and_leaves(self, client: KubeClient, note: Note) -> None:
        one = await client.create(CONFIG_MAPS, note("a", x="1", y="2"))
        after = await client.patch(CONFIG_MAPS, one["metadata"]["name"], {"data": {"x": None, "z": "3"}})
        assert after["data"] == {"y": "2", "z": "3"}

    async def test_a_version_in_a_merge_patch_is_a_condition(self, client: KubeClient, note: Note) -> None:
        one = await client.create(CONFIG_MAPS, note("a", x="1"))
        name, version = one["metadata"]["name"], one["metadata"]["resourceVersion"]
        patch: Json = {"metadata": {"resourceVersion": version}, "data": {"x": "2"}}
        await client.patch(CONFIG_MAPS, name, patch)
        with pytest.raises(Conflict):
            await client.patch(CONFIG_MAPS, name, patch | {"data": {"x": "3"}})

    async def test_a_json_patch_does_all_or_nothing(self, client: KubeClient, note: Note) -> None:
        one = await client.create(CONFIG_MAPS, note("a", x="1"))
        name = one["metadata"]["name"]
        good: list[Json] = [{"op": "replace", "path": "/data/x", "value": "2"}]
        assert (await client.patch(CONFIG_MAPS, name, good, kind=PatchKind.JSON))["data"] == {"x": "2"}
        bad: list[Json] = [*good, {"op": "test", "path": "/data/x", "value": "9"}]
        with pytest.raises(Invalid) as caught:
            await client.patch(CONFIG_MAPS, name, bad, kind=PatchKind.JSON)
        assert caught.value.status == 422
        assert (await client.get(CONFIG_MAPS, name))["data"] == {"x": "2"}


class ApplyContract:
    """Kubernetes, "Server-Side Apply"."""

    async def test_the_same_apply_again_changes_nothing(self, client: KubeClient, note: Note) -> None:
        first = await client.apply(note("a", x="1"))
        assert await client.apply(note("a", x="1")) == first

    async def test_what_is_applied_no_more_goes(self, client: KubeClient, note: Note) -> None:
        await client.apply(note("a", x="1", y="2"))
        assert (await client.apply(note("a", y="2")))["data"] == {"y": "2"}

    async def test_what_somebody_else_wrote_stays(self, client: KubeClient, note: Note) -> None:
        one = await client.apply(note("a", x="1"))
        await client.patch(CONFIG_MAPS, one["metadata"]["name"], {"data": {"theirs": "1"}})
        assert (await client.apply(note("a", x="2")))["data"] == {"x": "2", "theirs": "1"}

    async def test_a_field_that_somebody_else_changed_is_a_conflict_unless_forced(
        self, client: KubeClient, note: Note
    ) -> None:
        one = await client.apply(note("a", x="1"))
        await client.patch(CONFIG_MAPS, one["metadata"]["name"], {"data": {"x": "theirs"}})
        with pytest.raises(Conflict) as caught:
            await client.apply(note("a", x="2"))
        assert caught.value.status == 409 and ".data.x" in str(caught.value)
        assert (await client.apply(note("a", x="2"), force=True))["data"] == {"x": "2"}

    async def test_a_services_selector_is_one_value(self, client: KubeClient, service: Json) -> None:
        """What is applied takes the place of all of it: a key that somebody added goes, and with it their pods."""
        name = (await client.apply(service))["metadata"]["name"]
        narrowed = await client.patch(SERVICES, name, {"spec": {"selector": {"version": "1"}}})
        assert narrowed["spec"]["selector"] == service["spec"]["selector"] | {"version": "1"}
        with pytest.raises(Conflict) as caught:
            await client.apply(service)
        assert ".spec.selector" in str(caught.value)
        again = await client.apply(service, force=True)
        assert again["spec"]["selector"] == service["spec"]["selector"]
        owners = [each for each in again["metadata"]["managedFields"] if "f:selector" in each["fieldsV1"]["f:spec"]]
        assert [(each["operation"], each["fieldsV1"]["f:spec"]["f:selector"]) for each in owners] == [("Apply", {})]


class StatusContract:
    """API conventions, "Spec and Status"."""

    async def test_a_status_on_the_main_resource_is_dropped_silently(self, client: KubeClient, scene: Json) -> None:
        name = (await client.create(DEPLOYMENTS, scene))["metadata"]["name"]
        after = await client.patch(DEPLOYMENTS, name, {"status": {"collisionCount": 77}})
        assert after.get("status", {}).get("collisionCount") != 77

    async def test_the_status_has_a_door_of_its_own(self, client: KubeClient, scene: Json) -> None:
        name = (await client.create(DEPLOYMENTS, scene))["metadata"]["name"]
        patch: Json = {"spec": {"minReadySeconds": 9}, "status": {"collisionCount": 77}}
        after = await client.patch(DEPLOYMENTS, name, patch, subresource="status")
        assert after["status"]["collisionCount"] == 77
        assert after["spec"].get("minReadySeconds", 0) == 0
        assert after["metadata"]["generation"] == 1


class ServerContract(
    WritingContract,
    PatchingContract,
    ApplyContract,
    StatusContract,
):
    """All that is promised of built-in kinds."""


class RolloutContract:
    """The same rules on Argo's own kind, where its CustomResourceDefinition is installed."""

    @pytest.fixture
    async def rollout(self, client: KubeClient, scene: Json) -> Json:
        try:
            await client.list(ROLLOUTS)
        except NotFound:
            pytest.skip("no Rollouts in this cluster")
        spec: Json = scene["spec"] | {"paused": True, "strategy": {"canary": {"steps": [{"setWeight": 5}]}}}
        return scene | {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "spec": spec}

    async def test_an_update_without_a_version_is_refused(self, client: KubeClient, rollout: Json) -> None:
        await client.create(ROLLOUTS, rollout)
        with pytest.raises(Invalid) as caught:
            await client.replace(ROLLOUTS, rollout)
        assert caught.value.status == 422

    async def test_a_status_on_the_main_resource_is_dropped_silently(self, client: KubeClient, rollout: Json) -> None:
        name = (await client.create(ROLLOUTS, rollout))["metadata"]["name"]
        after = await client.patch(ROLLOUTS, name, {"status": {"promoteFull": True}})
        assert "promoteFull" not in after.get("status", {})
