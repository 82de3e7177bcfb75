"""`tidegate init --from-rollout` and `--from-route`: a spec that names objects of others, as they are in a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rollouts.argo.model import Rollout, pause_points
from rollouts.cluster.reference import argument_place, with_workload
from rollouts.errors import NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at, containers_of, labels_of
from rollouts.kube.resources import (
    ANALYSIS_TEMPLATES,
    DEPLOYMENTS,
    GATEWAYS,
    HTTP_ROUTES,
    INFERENCE_POOLS,
    POD_MONITORS,
    ROLLOUTS,
    SERVICES,
)
from rollouts.manifests.conventions import TrafficRouter
from rollouts.manifests.routers import ROUTERS
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.spec import NAME
from tidegate.core.text import redacted
from tidegate.core.yaml_text import yaml_text

TODO_ENTRY, TODO_PROMETHEUS = "https://TODO.example", "http://prometheus-operated.monitoring.svc:9090"
_TAG = re.compile(r":v?(\d+\.\d+\.\d+)[^/@]*(?:@.*)?$")

TEMPLATE = """\
# Deliveries to {whose} of others: tidegate changes the fields under `set`, moves steps or weights, and adds nothing.
apiVersion: tidegate/v1
kind: Delivery
metadata: {{name: {name}}}
# TODO: the registered model of MLflow, whose versions serve.
model: {{name: {name}, from: challenger, to: champion}}
engine:
{engine}  # {vllm_from}
  vllm: {{version: {vllm}}}
gates:
  latency: {{metric: ttft, quantile: 0.95, max_increase: 20%}}
  errors: {{max_increase: 0.5pp}}
stages:
  # {weights_from}
  - canary: {{weights: {weights}, within: 1h, gates: [latency, errors]}}
regions:
  waves: [[{region}]]
  bake: 30m
# TODO: requests of one region, so that `tidegate plan` can say how long each gate takes.
# traffic: {{requests_per_second: 20}}
metrics: {{scrape_interval: 15s}}  # TODO: as your PodMonitor has it
{fleet_note}fleet:
{fleet}"""


ONE_IMAGE = """\
  # One image for all versions: an argument says which one is served.
  image: {{reference: "{image}", by_tag: true}}
"""
AN_IMAGE_EACH = """\
  # TODO: each version's image is its tag `tidegate.engine.image` in MLflow, by digest; or name an argument under `set`.
"""
_NUMBER = re.compile(r"(?<=[/:@=_v-])\d{1,6}(?=/|$)")


async def drafted(
    cluster: KubeClient, rollout: str, *, context: str = "", container: str | None = None, name: str | None = None
) -> str:
    """The spec's text. Reads the Rollout, its route and its AnalysisTemplates; changes nothing.

    Raises:
        UsageError: there is no such Rollout or container, or `name` is none.
        FleetError: the cluster cannot be read.
    """
    found = await cluster.find(ROLLOUTS, rollout)
    if found is None:
        raise UsageError(f"there is no Rollout {rollout} in {cluster.namespace}", hint="name it, or --namespace")
    workload = str(at(found, "spec", "workloadRef", "name", default=""))
    if workload and (kind := at(found, "spec", "workloadRef", "kind")) != "Deployment":
        raise UsageError(f"Rollout {rollout}: found workloadRef to a {kind}; expected a Deployment")
    if workload:
        found = with_workload(found, await cluster.get(DEPLOYMENTS, workload))
    canary = at(found, "spec", "strategy", "canary", default={})
    routing = canary.get("trafficRouting") or {}
    splits = ((traffic, name) for traffic, router in ROUTERS.items() for name in router.named_in(routing))
    traffic, route = next(splits, (TrafficRouter.GATEWAY_API, ""))
    live = await cluster.find(ROUTERS[traffic].resource, route) if route else None
    prometheus = await _prometheus(cluster, found)
    serving = _container(found, container)
    by_argument = dict(_by_version(serving))
    fleet: dict[str, Any] = {
        "kind": "argo",
        "namespace": cluster.namespace,
        **({} if traffic is TrafficRouter.GATEWAY_API else {"traffic": str(traffic)}),
        "rollout": {
            "name": rollout,
            "container": str(serving["name"]),
            **({"workload": workload} if workload else {}),
            "set": {"args": by_argument} if by_argument else {"image": "{image}"},
            "stable_service": str(canary.get("stableService") or "TODO"),
            "canary_service": str(canary.get("canaryService") or "TODO"),
            "route": route or "TODO",
        },
    }
    weights = [point.weight for point in pause_points(Rollout(found).steps) if 0 < point.weight < 100]
    weights_from = "the steps of the Rollout that wait" if weights else "TODO: none of its steps waits for a gate"
    place = {"entry": _entry(live) or TODO_ENTRY, "prometheus": prometheus or TODO_PROMETHEUS}
    said = {"name": name or rollout, "whose": f"Rollout {rollout}", "weights_from": weights_from, "fleet_note": ""}
    return _spec(fleet, context, place, serving, weights=weights, **said)


async def drafted_from_route(
    cluster: KubeClient, route: str, *, context: str = "", container: str | None = None, name: str | None = None
) -> str:
    """The same for two backends of an HTTPRoute, with the Deployment behind each where there is one.

    Raises:
        UsageError: there is no such route, its rules have not two backends, or as for `drafted`.
        FleetError: the cluster cannot be read.
    """
    found = await cluster.find(HTTP_ROUTES, route)
    if found is None:
        raise UsageError(f"there is no HTTPRoute {route} in {cluster.namespace}", hint="name it, or --namespace")
    rules = [
        {str(ref["name"]): ref for ref in rule.get("backendRefs") or []}
        for rule in at(found, "spec", "rules", default=[])
    ]
    pairs = {tuple(sorted(rule)): rule for rule in rules if len(rule) == 2}
    if len(pairs) != 1:
        there = "; ".join(", ".join(rule) or "none" for rule in rules)
        raise UsageError(f"HTTPRoute {route}: found backends {there}; expected rules that share the same two")
    (backends,) = pairs.values()
    running = await cluster.list(DEPLOYMENTS)
    pods = {backend: await _pods_of(cluster, ref, running) for backend, ref in backends.items()}
    label = await _told_apart_by(cluster, *(labels for labels, _ in pods.values()))
    peers, serving = dict[str, Json](), dict[str, Any]()
    for backend, (labels, workload) in pods.items():
        kind = str(backends[backend].get("kind") or "Service")
        peers[backend] = {"backend": backend, "kind": kind, "series": labels[label] if label else backend}
        if workload:
            serving = _container(workload, container)
            peers[backend]["workload"] = {"name": workload["metadata"]["name"], "set": dict(_fields(workload, serving))}
    todo = "# TODO: `label`, and `series` of each peer, by which Prometheus tells their engines apart.\n"
    said = {"name": name or route, "whose": f"two backends of HTTPRoute {route}", "weights_from": "percent of users"}
    fleet: Json = {"kind": "route", "namespace": cluster.namespace, "route": route}
    fleet |= {"label": re.sub(r"\W", "_", label or "service"), "peers": peers}
    place = {"entry": _entry(found) or await _gateway(cluster, found) or TODO_ENTRY, "prometheus": TODO_PROMETHEUS}
    return _spec(fleet, context, place, serving, weights=(), fleet_note="" if label else todo, **said)


async def _pods_of(cluster: KubeClient, ref: Json, running: Sequence[Json]) -> tuple[Mapping[str, str], Json | None]:
    """The labels of the pods behind a backend, and the one Deployment that they are of."""
    pool = ref.get("kind") == INFERENCE_POOLS.kind
    live = await cluster.find(INFERENCE_POOLS if pool else SERVICES, str(ref["name"]))
    wanted: Json = at(live, "spec", "selector", *(["matchLabels"] if pool else []), default={})
    labels = [(labels_of(at(each, "spec", "template", default={})), each) for each in running if wanted]
    found = [(has, each) for has, each in labels if wanted.items() <= has.items()]
    return found[0] if len(found) == 1 else (wanted, None)


def _spec(fleet: Json, context: str, place: Json, serving: Json, *, weights: Sequence[int] = (), **said: str) -> str:
    if not re.fullmatch(NAME, said["name"]):
        raise UsageError(f"--name: found {said['name']!r}; expected lower case letters, digits and dashes")
    region, image = re.sub(r"[^a-z0-9]+", "-", context.lower()).strip("-") or "main", str(serving.get("image") or "")
    tag, regions = _TAG.search(image), {region: ({"context": context} if context else {}) | place}
    return TEMPLATE.format(
        engine=ONE_IMAGE.format(image=image) if any(_by_version(serving)) else AN_IMAGE_EACH,
        vllm=tag[1] if tag else "0.32.0",
        vllm_from=f"the tag of {image}" if tag else "TODO: the version of vLLM in the image",
        weights=list(weights) or [5, 25, 50],
        region=region,
        fleet="".join(f"  {line}\n" for line in yaml_text({**fleet, "regions": regions}).splitlines()),
        **said,
    )


async def _told_apart_by(cluster: KubeClient, one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The label of pods that a PodMonitor brings into their series, and that differs; empty where none does."""
    with suppress(NotFound):
        for monitor in await cluster.list(POD_MONITORS):
            for label in at(monitor, "spec", "podTargetLabels", default=[]):
                if label in one and label in other and one[label] != other[label]:
                    return str(label)
    return ""


def _fields(workload: Json, container: Json) -> Iterator[tuple[str, str]]:
    """What differs from one version to the next, by JSON pointer: arguments with a number, else the image."""
    known = containers_of(at(workload, "spec", "template", default={}))
    path = f"/spec/template/spec/containers/{known.index(container)}"
    by_argument = dict(_by_version(container))
    for part in ("args", "command"):
        for name, text in by_argument.items():
            if place := argument_place(container.get(part) or [], f"{path}/{part}", name):
                yield place.path, place.prefix + text
    if not by_argument:
        yield f"{path}/image", "{image}"


async def _gateway(cluster: KubeClient, route: Json) -> str:
    """The address of the route's gateway; empty while it has none."""
    parent = at(route, "spec", "parentRefs", 0, default={})
    found = await cluster.find(GATEWAYS, str(parent.get("name")), namespace=parent.get("namespace"))
    address = str(at(found, "status", "addresses", 0, "value", default=""))
    return f"http://{address}" if address else ""


def _container(rollout: Json, wanted: str | None) -> Json:
    """The one that is named; else the one whose image or command speaks of vLLM, or the first."""
    known = containers_of(at(rollout, "spec", "template", default={}))
    named = [each for each in known if each.get("name") == wanted] if wanted else known
    if not named:
        there = ", ".join(str(each.get("name")) for each in known) or "none"
        raise UsageError(f"--container: found {wanted or 'nothing'}; expected one of: {there}")
    return max(named, key=lambda each: any("vllm" in word for word in (str(each.get("image")), *_words(each))))


def _by_version(container: Json) -> Iterator[tuple[str, str]]:
    """Arguments that end with a number, as a folder or a tag of each version does, with a place for it."""
    words = _words(container)
    for index, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name in {"--model", "--revision"}:
            value = value if has_value else words[index + 1] if index + 1 < len(words) else ""
            if _NUMBER.search(value) and "{" not in value:
                yield name, _NUMBER.sub("{version}", value)


def _words(container: Json) -> list[str]:
    return [str(each) for each in (*container.get("command", []), *container.get("args", []))]


def _entry(route: Json | None) -> str:
    hosts = at(route, "spec", "hostnames", default=None) or at(route, "spec", "hosts", default=[])
    plain = [str(each) for each in hosts if "*" not in str(each) and "." in str(each)]
    return f"https://{plain[0]}" if plain else ""


async def _prometheus(cluster: KubeClient, rollout: Json) -> str:
    """The address that an AnalysisTemplate of the Rollout asks; empty where none does."""
    canary = at(rollout, "spec", "strategy", "canary", default={})
    analyses = [canary.get("analysis"), *(step.get("analysis") for step in Rollout(rollout).steps)]
    for name in (one.get("templateName") for each in analyses for one in at(each, "templates", default=[])):
        template = await cluster.find(ANALYSIS_TEMPLATES, str(name))
        for metric in at(template, "spec", "metrics", default=[]):
            if address := str(at(metric, "provider", "prometheus", "address", default="")):
                return redacted(address).rstrip("/")
    return ""
