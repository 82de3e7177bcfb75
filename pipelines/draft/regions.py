"""Clusters as regions of a draft: their names, addresses and waves. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pipelines.draft.model import Sketch
from rollouts.manifests.fields import host_in
from rollouts.survey.model import Router, ServingSurvey
from tidegate.core.names import digest

_TOPOLOGY = "topology.kubernetes.io/region"
_CLOUD_REGION = re.compile(
    r"\b(?:us|eu|ap|sa|ca|me|af|il|mx|europe|asia|australia|africa|northamerica|southamerica)-[a-z]+(?:-\d|\d+)\b"
)
_LONGEST = 40
NO_PROMETHEUS = "https://prometheus.example.com"


def named_regions(surveys: Sequence[ServingSurvey]) -> Mapping[str, ServingSurvey]:
    """By the region that nodes are labelled with, where no two clusters share it; else by the context's name."""
    labelled = [each.pod.node_labels.get(_TOPOLOGY, "") or _in_context(each.context) for each in surveys]
    often = Counter(labelled)
    found: dict[str, ServingSurvey] = {}
    for label, each in zip(labelled, surveys, strict=True):
        slug = _slug(each.context) or "region-1"
        names = (label if often[label] == 1 else "", slug, f"{slug}-{digest(each.context)}")
        found[next(name for name in names if name and name not in found)] = each
    return found


def _in_context(context: str) -> str:
    found = _CLOUD_REGION.search(context.replace("_", " ").lower())
    return found[0] if found else ""


def _slug(context: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", context.lower()).strip("-")[-_LONGEST:].strip("-")


def put_regions(sketch: Sketch, regions: Mapping[str, ServingSurvey], replicas: int, name: str) -> None:
    """`fleet.regions`: where users, tidegate and its questions go in each."""
    hosts = Counter(host_in(each.traffic.entry) for each in regions.values() if each.traffic.entry)
    for region, each in regions.items():
        here = f"fleet.regions.{region}"
        if each.context:
            sketch.put(f"{here}.context", each.context)
        _put_addresses(sketch, here, region, each, shared=hosts[host_in(each.traffic.entry)] > 1, name=name)
        _put_prometheus(sketch, here, each)
        if each.replicas != replicas:
            sketch.found(f"{here}.replicas", each.replicas, each.subject)


def _put_addresses(sketch: Sketch, here: str, region: str, each: ServingSurvey, *, shared: bool, name: str) -> None:
    traffic, entry = each.traffic, each.traffic.entry
    if entry and host_in(entry):
        sketch.found(f"{here}.entry", entry, f"{traffic.router} {traffic.route}")
    else:
        entry = f"https://{name}.example.com"
        sketch.decide(f"{here}.entry", entry, "the address under which users of this region ask; no route says it")
    if traffic.router is Router.VIRTUAL_SERVICE:
        sketch.unsupported(
            f"VirtualService {traffic.route}",
            "two VirtualServices of one host and gateway are merged in an order that Istio does not promise",
            f"give {here}.entry a host of its own until users have moved: docs/guides/cluster.md",
        )
    parts = urlsplit(entry)
    host = f"{region}.{parts.netloc}" if shared else parts.netloc
    why = f"where tidegate alone asks the stable of {region}, past all weights; users must not reach it"
    sketch.decide(
        f"{here}.stable_url",
        f"{parts.scheme}://stable.{host}",
        why,
        "fleet.gateway.direct: docs/start/cluster-quickstart.md, step 2",
    )
    sketch.put(f"{here}.canary_url", f"{parts.scheme}://canary.{host}", "TODO: the same for the canary")


def _put_prometheus(sketch: Sketch, here: str, each: ServingSurvey) -> None:
    rollouts = next((one for one in each.prometheus if one.asked_by == "rollouts"), None)
    keda = next((one for one in each.prometheus if one.asked_by == "keda"), None)
    inside = rollouts or keda
    where = f"{here}.prometheus"
    if inside is None:
        sketch.decide(where, NO_PROMETHEUS, "the Prometheus that scrapes this region's pods; no object names it")
        return
    sketch.decide(
        f"{where}.url",
        inside.address,
        f"as the machine that runs tidegate reaches it; {inside.source} has this address",
    )
    sketch.put(f"{where}.rollouts", inside.address, f"from {inside.source}")
    if keda and keda.address != inside.address:
        sketch.put(f"{where}.keda", keda.address, f"from {keda.source}")


def put_waves(sketch: Sketch, regions: Sequence[str]) -> None:
    """The first region alone, the others together."""
    first, *others = regions
    sketch.put(
        "regions.waves",
        [[first], list(others)] if others else [[first]],
        "in the order of --context: the first alone, so that what is wrong with a version is seen in one region",
    )
    sketch.put("regions.bake", "30m", "how long a wave serves everybody before the next one begins")
