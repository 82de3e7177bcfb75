"""Tests that write to whatever cluster KUBECONFIG names: collected only when `make test-cluster` asks for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from uuid import uuid4

import pytest

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.connect import connect
from rollouts.errors import NotFound
from rollouts.kube.resources import NAMESPACES
from tidegate.core.clock import SystemClock

WANTED = "TIDEGATE_TEST_CLUSTER"
"""Set by the Makefile; KUBECONFIG alone is set on too many machines to mean that tests may write there."""

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


@pytest.fixture
def marked() -> str:
    return f"run-{uuid4().hex[:8]}"


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
