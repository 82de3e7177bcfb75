"""What pods and routes have today that tidegate's own would not. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pipelines.draft.model import Sketch
from rollouts.survey.model import Router, ServingSurvey

PATCHES = "`fleet.patches` (docs/guides/your-pods.md)"
_OF_ARGO = {"istio", "plugins"}
_QUIET = re.compile(r"^(kubectl\.kubernetes\.io|checksum|rollout|prometheus\.io|meta\.helm\.sh|helm\.sh)/")
"""Annotations of tools, which say nothing about what a pod needs."""


class Misfit(NamedTuple):
    """One thing that would be missing, and what to do about it."""

    subject: str
    what: str
    action: str


def note_misfits(sketch: Sketch, lead: ServingSurvey, *, adopting: bool = False) -> None:
    """Say what does not come along; `adopting` says what becomes of the traffic of objects that are taken over."""
    for each in (*_pods(lead), *_routers(lead, adopting=adopting), *_strategy(lead), *_traffic(lead), *_monitors(lead)):
        sketch.unsupported(*each)


def _pods(lead: ServingSurvey) -> Iterator[Misfit]:
    pod = lead.pod
    if pod.engine.environment:
        named = ", ".join(
            each.name if each.source == "a value" else f"{each.name} (from {each.source})"
            for each in pod.engine.environment
        )
        yield Misfit("environment", named, f"add those that the engine needs: {PATCHES}")
    for each in pod.sidecars:
        yield Misfit("sidecar", each, f"add it: {PATCHES}")
    for each in pod.init_containers:
        yield Misfit("init container", each, "tidegate brings weights itself: docs/guides/your-engines.md#weights")
    if told := [each for each in pod.annotations if not _QUIET.match(each)]:
        yield Misfit("annotations", ", ".join(told), "`fleet.annotations` sets them: docs/guides/your-pods.md")
    if pod.runtime_class:
        yield Misfit("runtimeClassName", pod.runtime_class, f"add it: {PATCHES}")
    if pod.service_account not in {"", "default"}:
        action = "`fleet.pod.service_account` keeps it; else give its rights (workload identity) to the new one"
        yield Misfit("service account", f"{pod.service_account}; tidegate's pods have one of their own", action)
    if pod.engine.probes:
        yield Misfit(
            "probes", ", ".join(pod.engine.probes), "tidegate probes vLLM's /health: docs/guides/your-engines.md"
        )
    other = [f"{each.path} ({each.kind})" for each in pod.engine.mounts if not each.claim and each.path != "/dev/shm"]
    if other:
        yield Misfit(
            "volumes", ", ".join(other), f"HOME, /tmp, /dev/shm and the weights are there; add others: {PATCHES}"
        )


def _routers(lead: ServingSurvey, *, adopting: bool) -> Iterator[Misfit]:
    strategy = lead.strategy
    if adopting and "istio" in strategy.routers:
        action = "`rollout adopt` takes an HTTPRoute only; without --adopt the draft is of engines next to these"
        yield Misfit("traffic router", "istio", action)
    unknown = [each for each in strategy.routers if each not in _OF_ARGO and "gatewayapi" not in each.lower()]
    if unknown:
        action = "tidegate moves traffic by the Gateway API or by Istio: docs/start/cluster-quickstart.md"
        yield Misfit("traffic router", ", ".join(unknown), action)
    if strategy.kind == "canary" and not strategy.routers:
        route = lead.traffic.route if adopting and lead.traffic.router is Router.HTTP_ROUTE else ""
        action = (
            f"`rollout adopt` gives HTTPRoute {route} weights, which a delivery moves"
            if route
            else "tidegate moves requests by a gateway's weights: docs/start/cluster-quickstart.md"
        )
        yield Misfit("traffic router", "none: shares of users are shares of pods today", action)


def _strategy(lead: ServingSurvey) -> Iterator[Misfit]:
    strategy = lead.strategy
    if strategy.analyses:
        action = "gates judge instead: docs/concepts/comparison.md; analyses of SLOs are written from `slos`"
        yield Misfit("analyses", ", ".join(strategy.analyses), action)
    if strategy.kind == "blueGreen":
        yield Misfit("strategy", "blue-green today; the draft has a canary", "decide on the canary's weights")
    if strategy.dynamic_stable:
        action = (
            "`fleet.canary.dynamic_stable: true` with `previous: null` does the same, and going back waits for starts"
        )
        yield Misfit("dynamicStableScale", "the stable gives its pods away while users leave it", action)


def _traffic(lead: ServingSurvey) -> Iterator[Misfit]:
    traffic = lead.traffic
    if traffic.router is Router.INGRESS:
        action = "tidegate needs a gateway of the Gateway API or of Istio: docs/start/cluster-quickstart.md"
        yield Misfit(
            f"Ingress {traffic.route}", "users come by an Ingress, whose weights tidegate does not move", action
        )
    if traffic.router is Router.NONE:
        action = "tidegate needs a gateway of the Gateway API or of Istio: docs/start/cluster-quickstart.md"
        yield Misfit("route", "no HTTPRoute, VirtualService or Ingress leads to its Services", action)
    for each in traffic.services:
        if each.type != "ClusterIP":
            action = "move them to the gateway: past it there are no weights"
            yield Misfit(f"Service {each.name}", f"of type {each.type}: callers may come past the gateway", action)


def _monitors(lead: ServingSurvey) -> Iterator[Misfit]:
    for each in lead.monitors:
        labels = {key: value for key, value in each.labels.items() if not key.startswith(("app.kubernetes", "helm.sh"))}
        if labels:
            told = ", ".join(f"{key}={value}" for key, value in labels.items())
            action = (
                "`tidegate doctor` finds engines that are not scraped; let the operator select PodMonitors without them"
            )
            yield Misfit(f"{each.kind} {each.name}", f"has {told}, by which an operator may choose monitors", action)
