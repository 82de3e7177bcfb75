"""What a test cluster has around it, besides the API servers that KUBECONFIG names.

`make cluster` writes it for the clusters that it brings up. For a cluster of another kind a person writes the same JSON
and names it in TIDEGATE_TEST_SURROUNDINGS; docs/internals/cluster-tests.md says what each field means.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.model import Value

VARIABLE = "TIDEGATE_TEST_SURROUNDINGS"


class ClusterSurroundings(Value):
    """One region's cluster."""

    context: str
    """Of the kubeconfig."""
    registry: str
    """Host and port to which the tests push, and from which nodes pull by the same name, over plain http."""
    prometheus: str
    """As the tests reach it; it reads PodMonitors and PrometheusRules of all namespaces."""
    prometheus_inside: str
    """As pods of the cluster reach it."""
    gateway_class: str
    """Whose gateways are Services labelled with their owner, as Envoy Gateway's are."""
    gateway_namespace: str
    """Where the proxies of such gateways run."""
    address: str
    """Of this machine, on which `forward` makes ports of the cluster reachable."""
    forward: tuple[str, ...]
    """A command that makes `{service}` in `{namespace}` reachable at `address`, port `{port}`, and returns.

    `{host}` is the Service's cluster IP, or its name in the cluster's DNS while it has none.
    """
    stop: tuple[str, ...] = ()
    """A command that ends the API server at once; empty where that is not allowed."""
    start: tuple[str, ...] = ()
    """Its opposite."""


class WorkflowSurroundings(Value):
    """What it takes for Argo Workflows to deliver, from the first cluster, to all of them."""

    prefix: tuple[str, ...]
    """Put before a command so that pods of the first cluster can reach a server that it starts."""
    address: str
    """Where such a server listens, as pods reach it."""
    forwarded: str
    """The same, as the tests reach it."""
    forward: tuple[str, ...] = ()
    """A command that brings that about; empty when it is so."""
    servers: Mapping[str, str]
    """By region: its API server as pods of the first cluster reach it."""


class Surroundings(Value):
    """All regions, in the order in which deliveries take them."""

    clusters: Mapping[str, ClusterSurroundings]
    base: str
    """An image in an OCI layout, `FOLDER:NAME`, with Python 3.11 at /usr/bin: engines of the tests stand on it."""
    workflows: WorkflowSurroundings | None = None
    versions: Mapping[str, str] = {}
    """By name, of what stands around the API servers, such as `Envoy Gateway`: for docs/reference/compatibility.md."""


def surroundings() -> Surroundings | None:
    """What TIDEGATE_TEST_SURROUNDINGS names; None when it names nothing."""
    named = os.environ.get(VARIABLE)
    return Surroundings.model_validate_json(Path(named).read_bytes()) if named else None


def run(command: tuple[str, ...], **places: str | int) -> None:
    """Run a command of the surroundings, its places filled in."""
    words = [word.format(**places) for word in command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
