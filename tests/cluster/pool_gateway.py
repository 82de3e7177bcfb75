"""A gateway of the tests' own, since none that is here sends users to InferencePools: Envoy, and who configures it.

Weights are those of the HTTPRoute at each moment, members the ready pods that a pool selects at each moment. Nothing is
tried again: a member that is missing for a moment is a failed request. Pickers are not asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from cluster.bed import Bed, free_port
from cluster.surroundings import run
from fakes.services.sockets import running

from rollouts.adapters.envoy import binary
from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import is_ready, written
from rollouts.kube.resources import HTTP_ROUTES, INFERENCE_POOLS, PODS
from rollouts.local.locks import replace_json
from tidegate.core.model import Json

GATEWAY = "pools"
LOOK_SECONDS = 0.1
API, FILTERS = "type.googleapis.com/envoy.config", "type.googleapis.com/envoy.extensions.filters"


DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: inferencepools.inference.networking.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: inference.networking.k8s.io
  scope: Namespaced
  names: {plural: inferencepools, kind: InferencePool, singular: inferencepool}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
            spec:
              type: object
              required: [selector, targetPorts]
              properties:
                selector:
                  type: object
                  required: [matchLabels]
                  properties: {matchLabels: {type: object, additionalProperties: {type: string, maxLength: 63}}}
                targetPorts: {type: array, minItems: 1, maxItems: 8, items: &port {type: object, required: [number],
                  properties: {number: {type: integer, minimum: 1, maximum: 65535}}}}
                appProtocol: {type: string, default: http, enum: [http, kubernetes.io/h2c]}
                endpointPickerRef:
                  type: object
                  required: [name]
                  properties:
                    group: {type: string, default: ""}
                    kind: {type: string, default: Service}
                    name: {type: string, minLength: 1, maxLength: 253}
                    port: *port
                    failureMode: {type: string, default: FailClose, enum: [FailOpen, FailClose]}
                  x-kubernetes-validations: [{rule: "self.kind != 'Service' || has(self.port)"}]
"""
"""InferencePools as Gateway API Inference Extension 1.5 has them (api/v1/inferencepool_types.go), for clusters without
them: the same fields, defaults, limits and rule; of the status nothing is checked."""


@contextmanager
def pool_gateway(bed: Bed, region: str, route: str, pools: Sequence[str], folder: Path) -> Iterator[str]:
    """While it lasts users of that route are led to its pools; the address at which they ask."""
    there = bed.around.workflows
    assert there is not None, "Envoy runs where pods can be reached"
    folder.mkdir()
    replace_json(folder / "bootstrap.json", _bootstrap(there.address.partition(":")[0], folder, pools))
    for pool in pools:
        replace_json(folder / f"{pool}.json", _members(pool, (), 0))
    replace_json(folder / "routes.json", _routes({}, 0))
    ending = threading.Event()
    client = bed.client(region)
    thread = threading.Thread(target=lambda: asyncio.run(_follow(client, route, pools, folder, ending)))
    command = [*there.prefix, binary(), "-c", str(folder / "bootstrap.json"), "--use-dynamic-base-id", "-l", "warning"]
    host, port = there.address.partition(":")[0], free_port(bed.around.clusters[region].address)
    run(bed.around.clusters[region].forward, host=host, service="", namespace="", port=port)
    entry = f"http://{bed.around.clusters[region].address}:{port}"
    with running(command, ready=f"{entry}/ready", log=folder / "envoy.log"):
        thread.start()
        try:
            yield entry
        finally:
            ending.set()
            thread.join()


async def _follow(client: KubeClient, route: str, pools: Sequence[str], folder: Path, ending: threading.Event) -> None:
    number, known = count(1), dict[str, object]()
    try:
        while not ending.is_set():
            with suppress(FleetError):
                for pool in pools:
                    if (found := await _ready(client, pool)) != known.get(pool):
                        known[pool] = found
                        replace_json(folder / f"{pool}.json", _members(pool, found, next(number)))
                found_route = await client.get(HTTP_ROUTES, route)
                refs = found_route["spec"]["rules"][0]["backendRefs"]
                if (weights := {each["name"]: each["weight"] for each in refs}) != known.get("weights"):
                    known["weights"] = weights
                    replace_json(folder / "routes.json", _routes(weights, next(number)))
                await _say(client, found_route)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await client.close()


async def _ready(client: KubeClient, pool: str) -> tuple[str, ...]:
    labels = (await client.get(INFERENCE_POOLS, pool))["spec"]["selector"]["matchLabels"]
    pods = await client.list(PODS, labels=written(labels))
    return tuple(sorted(each["status"]["podIP"] for each in pods if is_ready(each)))


async def _say(client: KubeClient, route: Json) -> None:
    """That the route is taken as it is: the word of a gateway's controller."""
    generation = route["metadata"]["generation"]
    parents = (route.get("status") or {}).get("parents") or []
    said = [each for parent in parents for each in parent["conditions"]]
    if said and all(each["observedGeneration"] == generation for each in said):
        return
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    common = {"status": "True", "reason": "Taken", "message": "", "lastTransitionTime": at}
    conditions = [{"type": kind, "observedGeneration": generation, **common} for kind in ("Accepted", "ResolvedRefs")]
    parent = {"parentRef": {"name": GATEWAY}, "controllerName": "example.com/pools", "conditions": conditions}
    await client.patch(HTTP_ROUTES, route["metadata"]["name"], {"status": {"parents": [parent]}}, subresource="status")


def _from(path: Path) -> Json:
    """Envoy sees a file that is moved into the folder."""
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


def _bootstrap(address: str, folder: Path, pools: Sequence[str]) -> Json:
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "users",
        "rds": {"route_config_name": "users", "config_source": _from(folder / "routes.json")},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}},
        ],
    }
    filters = [{"name": "http", "typed_config": manager}]
    clusters = [
        {
            "name": pool,
            "type": "EDS",
            "eds_cluster_config": {"eds_config": _from(folder / f"{pool}.json")},
            "connect_timeout": "2s",
        }
        for pool in pools
    ]
    return {
        "static_resources": {
            "listeners": [
                {"name": "users", "address": _socket(address, 80), "filter_chains": [{"filters": filters}]},
            ],
            "clusters": clusters,
        },
        "node": {"id": "pools", "cluster": "pools"},
    }


def _socket(address: str, port: int) -> Json:
    return {"socket_address": {"address": address, "port_value": port}}


def _members(pool: str, addresses: Sequence[str], number: int) -> Json:
    ends = [{"endpoint": {"address": _socket(each, 8000)}} for each in addresses]
    assigned = {"@type": f"{API}.endpoint.v3.ClusterLoadAssignment", "cluster_name": pool}
    return {"version_info": str(number), "resources": [{**assigned, "endpoints": [{"lb_endpoints": ends}]}]}


def _routes(weights: Json, number: int) -> Json:
    ready = {"match": {"path": "/ready"}, "direct_response": {"status": 200}}
    split = [{"name": name, "weight": weight} for name, weight in weights.items() if weight]
    action = {"weighted_clusters": {"clusters": split}, "timeout": "60s"}
    users = [{"match": {"prefix": "/"}, "route": action}] if split else []
    hosts = [{"name": "users", "domains": ["*"], "routes": [ready, *users]}]
    routes = {"@type": f"{API}.route.v3.RouteConfiguration", "name": "users", "virtual_hosts": hosts}
    return {"version_info": str(number), "resources": [routes]}
