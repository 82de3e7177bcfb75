"""`tidegate init --from-rollout`: a spec that names a Rollout of others, its Services, its route and its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rollouts.argo.model import Rollout, pause_points
from rollouts.cluster.reference import with_workload
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at, containers_of
from rollouts.kube.resources import ANALYSIS_TEMPLATES, DEPLOYMENTS, ROLLOUTS
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
# Deliveries to Rollout {rollout} of others: tidegate changes the fields under `set`, moves its steps, and adds nothing.
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
fleet:
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
    delivery = name or rollout
    if not re.fullmatch(NAME, delivery):
        raise UsageError(f"--name: found {delivery!r}; expected lower case letters, digits and dashes")
    serving, region = _container(found, container), re.sub(r"[^a-z0-9]+", "-", context.lower()).strip("-") or "main"
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
        "regions": {
            region: {
                **({"context": context} if context else {}),
                "entry": _entry(live) or TODO_ENTRY,
                "prometheus": prometheus or TODO_PROMETHEUS,
            }
        },
    }
    weights = [point.weight for point in pause_points(Rollout(found).steps) if 0 < point.weight < 100]
    tag = _TAG.search(str(serving.get("image", "")))
    return TEMPLATE.format(
        rollout=rollout,
        name=delivery,
        engine=ONE_IMAGE.format(image=serving.get("image")) if by_argument else AN_IMAGE_EACH,
        vllm=tag[1] if tag else "0.32.0",
        vllm_from=f"the tag of {serving.get('image')}" if tag else "TODO: the version of vLLM in the image",
        weights=weights or [5, 25, 50],
        weights_from="the steps of the Rollout that wait" if weights else "TODO: none of its steps waits for a gate",
        region=region,
        fleet="".join(f"  {line}\n" for line in yaml_text(fleet).splitlines()),
    )


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
