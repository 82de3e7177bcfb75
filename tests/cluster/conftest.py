"""Tests that write to whatever cluster KUBECONFIG names: collected only when `make test-cluster` asks for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from cluster import versions
from cluster.bed import Bed
from cluster.surroundings import VARIABLE, Surroundings, surroundings
from cluster.telling import Tell, Telling, telling
from fakes.argo.definitions import definitions

from rollouts.errors import NotFound
from rollouts.kube.client import KubeClient, connect
from rollouts.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tidegate.core.clock import SystemClock

WANTED = "TIDEGATE_TEST_CLUSTER"
"""Set by the Makefile; KUBECONFIG alone is set on too many machines to mean that tests may write there."""

REGIONS = "regions"
"""Ends the name of the namespace in which stories happen."""

collect_ignore_glob = [] if os.environ.get(WANTED) else ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.slow(reason="a real API server, and controllers that need their time"))


@pytest.fixture(scope="session")
def namespace() -> str:
    return f"tidegate-test-{uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def context() -> str | None:
    """The context to use; none for the current one."""
    return os.environ.get("TIDEGATE_TEST_CONTEXT") or None


@pytest.fixture
async def client(context: str | None, namespace: str) -> AsyncIterator[KubeClient]:
    """A client of a namespace that is made for the run."""
    client = connect(context, clock=SystemClock(), namespace=namespace)
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    yield client
    await client.close()


@pytest.fixture(scope="session")
def rollouts_kinds(context: str | None) -> None:
    """Argo Rollouts' kinds are there; tests bring nothing into a cluster that is not theirs."""

    async def missing() -> list[str]:
        client = connect(context, clock=SystemClock(), namespace="default")
        names = [body["metadata"]["name"] for body in definitions()]
        found = await client.list(CUSTOM_RESOURCE_DEFINITIONS)
        await client.close()
        return sorted(set(names) - {body["metadata"]["name"] for body in found})

    if absent := asyncio.run(missing()):
        pytest.skip(f"the cluster has no {absent[0]}; `make cluster` brings clusters that have Argo Rollouts' kinds")


@pytest.fixture
def marked() -> str:
    return f"run-{uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def around() -> Surroundings | None:
    return surroundings()


@pytest.fixture(scope="session", autouse=True)
def tidied(context: str | None, namespace: str) -> Iterator[None]:
    """The namespace goes when the run is over, with everything in it."""

    async def delete() -> None:
        client = connect(context, clock=SystemClock(), namespace=namespace)
        with suppress(NotFound):
            await client.delete(NAMESPACES, namespace)
        await client.close()

    yield
    asyncio.run(delete())


@pytest.fixture(scope="session", autouse=True)
def told_versions(around: Surroundings | None) -> None:
    """What this run is on, for docs/reference/compatibility.md, where somebody wants to know."""
    if around is None or versions.VARIABLE not in os.environ:
        return

    first = next(iter(around.clusters.values()))
    told = {**around.versions, "Prometheus": versions.prometheus_version(first.prometheus)}

    async def ask() -> dict[str, str]:
        client = connect(first.context, clock=SystemClock(), namespace="default")
        found = await versions.versions_of(client, told)
        await client.close()
        return found

    versions.keep(asyncio.run(ask()), Path(os.environ[versions.VARIABLE]))


@pytest.fixture(scope="session", autouse=True)
def stories(
    request: pytest.FixtureRequest,
    around: Surroundings | None,
    namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Telling | None]:
    """They take longest, and begin before the first test, whichever it is; None where there is no place for them."""
    asking = [item for item in request.session.items if {"regions", "tell"} & set(getattr(item, "fixturenames", ()))]
    if around is None or not asking:
        yield None
        return
    told = [item for item in asking if hasattr(item, "callspec") and "story" in item.callspec.params]
    by_module = {
        item.module: [each.callspec.params["story"] for each in told if each.module is item.module] for item in told
    }
    # Not the namespace of other tests: there another controller of Rollouts is at work.
    with telling(around, f"{namespace}-{REGIONS}", tmp_path_factory.mktemp("bed"), by_module) as begun:
        yield begun


@pytest.fixture(scope="session")
def regions(stories: Telling | None) -> Bed:
    """Regions that stories deliver to, once they are there."""
    if stories is None:
        pytest.skip(f"{VARIABLE} names no surroundings: no registry, gateway and Prometheus are known")
    return stories.bed.result()


@pytest.fixture
def tell(regions: Bed, stories: Telling) -> Tell:
    """What came of one of the stories."""
    return stories.ending
