"""The `fleet` part of a draft: regions, gateway, autoscaler, pods, nodes, network. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from pipelines.draft.engine import accelerator_of
from pipelines.draft.model import Sketch
from pipelines.draft.quantities import cores_text, mebibytes_of, memory_text
from pipelines.draft.regions import put_region
from rollouts.manifests.fields import host_in
from rollouts.manifests.nodes_spec import GpuLabels
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.survey.model import PodFacts, Router, ServingSurvey
from tidegate.core.units import format_duration, parse_duration

_MARGIN_SECONDS = 30
"""tidegate adds them to the drain: `terminationGracePeriodSeconds`."""
_SHORTEST_DRAIN = 30
_SHARED = "16Gi"
_CAPACITY = {"karpenter.sh/capacity-type": "spot"}
_CLUSTER_HOST = re.compile(r"^[^.]+\.([^.]+)(\.svc.*)?$")


def put_fleet(sketch: Sketch, region: str, lead: ServingSurvey, name: str) -> None:
    """Where engines run, and how users reach them."""
    sketch.put("fleet.kind", "argo")
    sketch.found("fleet.namespace", lead.namespace, lead.subject)
    put_region(sketch, region, lead, name)
    _put_gateway(sketch, lead)
    _put_numbers(sketch, lead)
    _put_pod(sketch, lead)
    _put_nodes(sketch, lead.pod)
    _put_network(sketch, lead)


def _put_gateway(sketch: Sketch, lead: ServingSurvey) -> None:
    traffic, here = lead.traffic, f"{lead.traffic.router} {lead.traffic.route}"
    istio = traffic.router is Router.VIRTUAL_SERVICE or "istio" in lead.strategy.routers
    if istio:
        sketch.found("fleet.traffic", "istio", here)
    if traffic.gateway:
        sketch.found("fleet.gateway.name", traffic.gateway, here)
    else:
        sketch.decide(
            "fleet.gateway.name",
            "users",
            "the gateway through which users ask; no route of these Services names one",
            "docs/start/cluster-quickstart.md: a gateway has to be there",
        )
    if traffic.gateway_namespace and traffic.gateway_namespace != lead.namespace:
        sketch.put("fleet.gateway.namespace", traffic.gateway_namespace)
    if traffic.listener and not istio:
        sketch.put("fleet.gateway.listener", traffic.listener)
    own = host_in(traffic.entry) if traffic.entry else ""
    hosts = [each for each in traffic.hosts if each not in {own, "*"}]
    if hosts:
        sketch.found("fleet.gateway.hosts", hosts, here)
    _put_timeout(sketch, traffic.timeout, here)
    others = f"; others of this gateway: {', '.join(traffic.other_listeners)}" if traffic.other_listeners else ""
    sketch.below(
        "fleet.gateway",
        [
            "TODO: who answers at each stable_url and canary_url: a gateway or listener that users do not",
            f"reach{others}. Without it, tidegate makes no such routes.",
            "  direct: {name: inside}" if istio else "  direct: {listener: inside}",
        ],
    )


def _put_timeout(sketch: Sketch, text: str, source: str) -> None:
    try:
        timeout = parse_duration(text)
    except ValueError:
        return
    # 0 is no limit, which a spec cannot say: its own default is 10 minutes.
    if timeout > timedelta(0):
        sketch.found("fleet.gateway.timeout", format_duration(timeout), source)


def _put_numbers(sketch: Sketch, lead: ServingSurvey) -> None:
    sketch.found("fleet.replicas", lead.replicas, lead.subject)
    if lead.scaler:
        scaler, subject = lead.scaler, f"{lead.scaler.kind} {lead.scaler.name}"
        least = min(max(1, scaler.min_replicas), lead.replicas)
        most = max(scaler.max_replicas, lead.replicas)
        sketch.found(
            "fleet.autoscale",
            {"by": "keda" if scaler.kind == "ScaledObject" else "hpa", "min_replicas": least, "max_replicas": most},
            subject,
        )
        if (least, most) != (scaler.min_replicas, scaler.max_replicas):
            sketch.comments[("fleet", "autoscale")].append(
                f"there {scaler.min_replicas} to {scaler.max_replicas}; wider here, so that `replicas` are within"
            )
        sketch.comments[("fleet", "autoscale")].append(
            "tidegate's own signals: requests that wait, KV cache in use, `ttft` if you name one"
        )
        signals = ", ".join(scaler.signals) or "signals of its own"
        needs = "" if scaler.kind == "ScaledObject" else "; `by: hpa` needs an adapter that serves external metrics"
        sketch.unsupported(
            subject,
            f"scales by {signals}; tidegate scales by requests that wait, the KV cache and time to first token{needs}",
            "docs/reference/spec.md: fleet.autoscale",
        )
    if lead.strategy.min_canary:
        sketch.found("fleet.canary", {"min_replicas": lead.strategy.min_canary}, lead.subject)
    sketch.put(
        "fleet.previous",
        {"versions": 1, "keep": _kept(lead)},
        "the version before stays warm: going back then takes seconds, and its accelerators are held; null keeps none",
    )
    if lead.unavailable and lead.unavailable < lead.replicas:
        sketch.found("fleet.unavailable", lead.unavailable, "its PodDisruptionBudget")


def _kept(lead: ServingSurvey) -> str:
    usual = timedelta(hours=2)
    said = timedelta(seconds=lead.strategy.warm_seconds or 0)
    return format_duration(max(usual, said))


def _put_pod(sketch: Sketch, lead: ServingSurvey) -> None:
    pod, engine, source = lead.pod, lead.pod.engine, f"container {lead.pod.engine.name}"
    if cpu := cores_text(engine.cpu):
        sketch.found("fleet.pod.cpu", cpu, source)
    else:
        sketch.decide("fleet.pod.cpu", "8", f"{source} asks for no processors that can be read")
    memory = memory_text(engine.memory)
    if memory:
        sketch.found("fleet.pod.memory", memory, source)
    else:
        sketch.decide("fleet.pod.memory", memory := "64Gi", f"{source} asks for no memory that can be read")
    _put_shared_memory(sketch, pod, memory)
    if engine.start_seconds and engine.start_seconds >= 60:
        within = format_duration(timedelta(seconds=engine.start_seconds))
        sketch.found("fleet.pod.start_within", within, f"the startup probe of {source}")
    drain = (pod.grace_seconds or 0) - _MARGIN_SECONDS
    if drain >= _SHORTEST_DRAIN:
        source_of_drain = f"its terminationGracePeriodSeconds of {pod.grace_seconds}, less {_MARGIN_SECONDS} s to end"
        sketch.found("fleet.pod.drain", format_duration(timedelta(seconds=drain)), source_of_drain)
    if engine.user:
        sketch.found("fleet.pod.user", engine.user, f"runAsUser of {source}")
    else:
        sketch.unsupported(
            f"user of {source}",
            "it names no user besides root; tidegate runs engines as user 10001, on a read-only root",
            "`fleet.pod.user` sets another one; try the image so before the first delivery",
        )
    if pod.pull_secrets:
        sketch.found("fleet.pod.pull_secrets", list(pod.pull_secrets), "its imagePullSecrets")
    if pod.labels:
        sketch.found("fleet.pod.labels", dict(pod.labels), "the pod template, without those that anything selects by")


def _put_shared_memory(sketch: Sketch, pod: PodFacts, memory: str) -> None:
    mount = next((each for each in pod.engine.mounts if each.path == "/dev/shm"), None)
    size = memory_text(mount.size) if mount and mount.size else None
    shared = size or _SHARED
    if mebibytes_of(shared) >= mebibytes_of(memory):
        half = f"{mebibytes_of(memory) // 2}Mi"
        sketch.put("fleet.pod.shared_memory", half, f"half of `memory`, which includes it; {shared} would not fit")
    elif size:
        sketch.found("fleet.pod.shared_memory", size, "its volume at /dev/shm")


def _put_nodes(sketch: Sketch, pod: PodFacts) -> None:
    found = accelerator_of(pod)
    if found.labels and found.labels is not GpuLabels.OPERATOR:
        sketch.found("fleet.nodes.gpu_labels", str(found.labels), found.source)
    rest = {key: value for key, value in pod.node_selector.items() if key not in found.keys}
    if _CAPACITY.items() <= rest.items():
        rest = {key: value for key, value in rest.items() if key not in _CAPACITY}
        sketch.found("fleet.nodes.capacity", "spot", "the pod's node selector")
    if rest:
        sketch.found("fleet.nodes.selector", rest, "the pod's node selector")
    usual = set(ArgoFleetSpec.model_fields["nodes"].default.tolerates)
    if set(pod.tolerates) - usual:
        sketch.found("fleet.nodes.tolerates", sorted({*pod.tolerates, *usual}), "the pod's tolerations")


def _put_network(sketch: Sketch, lead: ServingSurvey) -> None:
    inside = {
        found[1] for each in lead.prometheus if (found := _CLUSTER_HOST.match(host_in(each.address))) and found[2]
    }
    sketch.decide(
        "fleet.network.ingress_from",
        sorted(inside) or ["monitoring"],
        "namespaces besides the gateway's whose pods may ask engines: of Prometheus, and of callers that do not come "
        "through the gateway",
    )
    weights = sketch.document["engine"].get("weights", {})
    if "claim" not in weights:
        whole = ["0.0.0.0/0"] if "model" in weights else ["10.0.0.0/8"]
        what = "the hub" if "model" in weights else "MLflow and its artifact store"
        why = f"addresses of {what}: pods bring weights from there, and reach nothing else; as narrow as you know them"
        sketch.decide("fleet.network.egress_to", whole, why)
