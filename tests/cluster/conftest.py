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
from cluster.bed import Bed, bed
from cluster.surroundings import VARIABLE, Surroundings, surroundings
from cluster.telling import Telling, telling
from fakes.argo import process

from rollouts.adapters.kube.client import KubeClient, connect
from rollouts.errors import NotFound
from rollouts.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tidegate.core.clock import SystemClock

WANTED = "TIDEGATE_TEST_CLUSTER"
"""Set by the Makefile; KUBECONFIG alone is set on too many machines to mean that tests may write there."""

REGIONS = "regions"
"""Ends the name of the namespace in which stories happen."""

collect_ignore_glob = [] if os.environ.get(WANTED) else ["test_*.py"]


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
        names = [body["metadata"]["name"] for body in process.definitions()]
        found = await client.list(CUSTOM_RESOURCE_DEFINITIONS)
        await client.close()
        return sorted(set(names) - {body["metadata"]["name"] for body in found.items})

    if absent := asyncio.run(missing()):
        pytest.skip(f"the cluster has no {absent[0]}; `make cluster` brings clusters that have Argo Rollouts' kinds")


@pytest.fixture
def forgets() -> bool:
    """Not known: etcd compacts every five minutes, and the cluster may be younger."""
    return False


@pytest.fixture
def marked() -> str:
    return f"run-{uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def around() -> Surroundings | None:
    return surroundings()


@pytest.fixture(scope="session", autouse=True)
def tidied(context: str | None, namespace: str, around: Surroundings | None) -> Iterator[None]:
    """The namespace goes when the run is over, with everything in it, in every region."""
    made = {(context, namespace)}
    made |= {(each.context, f"{namespace}-{REGIONS}") for each in around.clusters.values()} if around else set()

    async def delete(where: str | None, name: str) -> None:
        client = connect(where, clock=SystemClock(), namespace=name)
        with suppress(NotFound):
            await client.delete(NAMESPACES, name)
        await client.close()

    yield
    for where, name in made:
        asyncio.run(delete(where, name))


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


@pytest.fixture(scope="session")
def regions(around: Surroundings | None, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Regions that stories deliver to."""
    if around is None:
        pytest.skip(f"{VARIABLE} names no surroundings: no registry, gateway and Prometheus are known")

    # Not the namespace of other tests: there another controller of Rollouts is at work.
    name = f"{namespace}-{REGIONS}"

    async def make(where: str) -> None:
        client = connect(where, clock=SystemClock(), namespace=name)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await client.close()

    for each in around.clusters.values():
        asyncio.run(make(each.context))
    with bed(around, name, tmp_path_factory.mktemp("bed")) as made:
        yield made


@pytest.fixture(scope="module")
def tell(request: pytest.FixtureRequest, regions: Bed) -> Iterator[Telling]:
    """The ending of one of the module's stories."""
    mine = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["story"] for item in mine if "story" in getattr(item, "fixturenames", ())]
    with telling(regions, names, request.module.TOGETHER, getattr(request.module, "ALONE", {})) as endings:
        yield endings
