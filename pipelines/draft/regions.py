"""A cluster as the region of a draft: its name and addresses. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pipelines.draft.model import Sketch
from rollouts.manifests.fields import host_in
from rollouts.survey.model import Router, ServingSurvey

_TOPOLOGY = "topology.kubernetes.io/region"
_CLOUD_REGION = re.compile(
    r"\b(?:us|eu|ap|sa|ca|me|af|il|mx|europe|asia|australia|africa|northamerica|southamerica)-[a-z]+(?:-\d|\d+)\b"
)
_LONGEST = 40
NO_PROMETHEUS = "https://prometheus.example.com"


def region_name(survey: ServingSurvey) -> str:
    """As its nodes are labelled; else as its context is called."""
    slug = re.sub(r"[^a-z0-9]+", "-", survey.context.lower()).strip("-")[-_LONGEST:].strip("-")
    return survey.pod.node_labels.get(_TOPOLOGY, "") or _in_context(survey.context) or slug or "region-1"


def _in_context(context: str) -> str:
    found = _CLOUD_REGION.search(context.replace("_", " ").lower())
    return found[0] if found else ""


def put_region(sketch: Sketch, region: str, each: ServingSurvey, name: str) -> None:
    """`fleet.regions`: where users, tidegate and its questions go."""
    here = f"fleet.regions.{region}"
    if each.context:
        sketch.put(f"{here}.context", each.context)
    _put_addresses(sketch, here, region, each, name)
    _put_prometheus(sketch, here, each)


def _put_addresses(sketch: Sketch, here: str, region: str, each: ServingSurvey, name: str) -> None:
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
    why = f"where tidegate alone asks the stable of {region}, past all weights; users must not reach it"
    sketch.decide(
        f"{here}.stable_url",
        f"{parts.scheme}://stable.{parts.netloc}",
        why,
        "fleet.gateway.direct: docs/start/cluster-quickstart.md, step 2",
    )
    sketch.put(f"{here}.canary_url", f"{parts.scheme}://canary.{parts.netloc}", "TODO: the same for the canary")


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
