"""The pod template of others: which container serves, and what its pods get. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rollouts.kube.objects import at, containers_of, labels_of
from rollouts.survey.model import EnvironmentName, PodFacts, ServingContainer, VolumeMount
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

_OF_A_TOOL = re.compile(r"^(app\.kubernetes\.io|helm\.sh|tidegate\.dev|argocd\.argoproj\.io)/|^pod-template-hash$")
"""Labels that tools set and select by."""
_EXTENDED = re.compile(r"^[a-z0-9.-]+/[a-z0-9.-]+$")
_SOURCES = {
    "secretKeyRef": "Secret",
    "configMapKeyRef": "ConfigMap",
}
_PROBES = {"startupProbe": "startup", "readinessProbe": "readiness", "livenessProbe": "liveness"}


def pod_facts(
    template: Json, pods: Sequence[Json], node: Json, *, container: str, relied_on: frozenset[str]
) -> PodFacts:
    """What its pods are.

    Args:
        template: the pod template.
        pods: that were made from it.
        node: that one of them runs on; empty when none is known.
        container: the one that serves; told from what they run when empty.
        relied_on: keys of labels that selectors ask for.

    Raises:
        UsageError: no container of that name.
    """
    engine = _engine(template, container)
    spec = at(template, "spec", default={})
    labels = {
        key: value
        for key, value in labels_of(template).items()
        if key not in relied_on and key != POD_TEMPLATE_HASH and not _OF_A_TOOL.search(key)
    }
    return PodFacts(
        engine=_container(engine, spec, pods),
        sidecars=tuple(_said(each) for each in containers_of(template) if each is not engine),
        init_containers=tuple(_said(each) for each in at(spec, "initContainers", default=[])),
        grace_seconds=at(spec, "terminationGracePeriodSeconds"),
        pull_secrets=tuple(str(each["name"]) for each in at(spec, "imagePullSecrets", default=[]) if each.get("name")),
        labels=labels,
        annotations=tuple(at(template, "metadata", "annotations", default={})),
        node_selector=_required_labels(spec),
        tolerates=tuple(dict.fromkeys(str(t["key"]) for t in at(spec, "tolerations", default=[]) if t.get("key"))),
        node_labels=labels_of(node),
        service_account=str(at(spec, "serviceAccountName", default="")),
        runtime_class=str(at(spec, "runtimeClassName", default="")),
    )


def _said(container: Json) -> str:
    return f"{container.get('name')} ({container.get('image')})"


def _engine(template: Json, wanted: str) -> Json:
    """The one that is asked for; else the one that runs vLLM, has an accelerator, or stands first."""
    known = containers_of(template)
    if not known:
        raise UsageError("its pod template has no container", hint="name a workload that serves")
    if wanted:
        named = [each for each in known if each.get("name") == wanted]
        if not named:
            raise UsageError(
                f"--container: found {wanted!r}; expected one of {', '.join(str(each.get('name')) for each in known)}"
            )
        return named[0]
    return max(known, key=lambda each: (_runs_vllm(each), bool(_accelerators(each))))


def _runs_vllm(container: Json) -> bool:
    words = [str(container.get("image", "")), *at(container, "command", default=[]), *at(container, "args", default=[])]
    return any("vllm" in str(word) for word in words)


def _container(body: Json, spec: Json, pods: Sequence[Json]) -> ServingContainer:
    name, image = str(body.get("name", "")), str(body.get("image", ""))
    startup = at(body, "startupProbe", default={})
    asked = at(body, "resources", "limits", default={}) | at(body, "resources", "requests", default={})
    return ServingContainer(
        name=name,
        image=image,
        digest=_digest(image, name, pods),
        command=tuple(map(str, at(body, "command", default=[]))),
        args=tuple(map(str, at(body, "args", default=[]))),
        environment=tuple(_environment(body)),
        cpu=str(asked.get("cpu", "")),
        memory=str(asked.get("memory", "")),
        accelerators=_accelerators(body),
        port=at(body, "ports", 0, "containerPort"),
        probes=tuple(_probes(body)),
        start_seconds=_allowed(startup) if startup else None,
        user=at(body, "securityContext", "runAsUser", default=at(spec, "securityContext", "runAsUser")),
        mounts=tuple(_mounts(body, spec)),
    )


def _digest(image: str, name: str, pods: Sequence[Json]) -> str:
    """The image's own where it is named by digest, else that of a pod which runs this very image."""
    named = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    if named:
        return named[1]
    for pod in pods:
        template_image = next((each.get("image") for each in containers_of(pod) if each.get("name") == name), None)
        for status in at(pod, "status", "containerStatuses", default=[]):
            # Without a repository in front it is the digest of a configuration, by which nothing can be pulled.
            found = re.search(r"\S@(sha256:[0-9a-f]{64})$", str(status.get("imageID", "")))
            if status.get("name") == name and template_image == image and found:
                return found[1]
    return ""


def _accelerators(body: Json) -> Mapping[str, int]:
    amounts = at(body, "resources", "requests", default={}) | at(body, "resources", "limits", default={})
    return {
        str(key): int(amount)
        for key, amount in amounts.items()
        if _EXTENDED.match(str(key)) and "hugepages" not in str(key) and str(amount).isdigit() and int(amount)
    }


def _environment(body: Json) -> Iterator[EnvironmentName]:
    for each in at(body, "env", default=[]):
        given = at(each, "valueFrom", default={})
        kinds = [f"{_SOURCES[key]} {at(told, 'name', default='')}" for key, told in given.items() if key in _SOURCES]
        source = kinds[0] if kinds else "the pod's own fields" if given else "a value"
        yield EnvironmentName(name=str(each.get("name", "")), source=source)
    for each in at(body, "envFrom", default=[]):
        for key, kind in {"secretRef": "Secret", "configMapRef": "ConfigMap"}.items():
            if name := at(each, key, "name"):
                yield EnvironmentName(name=f"{each.get('prefix') or ''}*", source=f"{kind} {name}")


def _probes(body: Json) -> Iterator[str]:
    for field, word in _PROBES.items():
        probe = at(body, field)
        if probe:
            path = at(probe, "httpGet", "path")
            yield f"{word} GET {path}" if path else f"{word} by {next(iter(probe))}"


def _allowed(probe: Json) -> int:
    period, failures = int(at(probe, "periodSeconds", default=10)), int(at(probe, "failureThreshold", default=3))
    return int(at(probe, "initialDelaySeconds", default=0)) + period * failures


def _mounts(body: Json, spec: Json) -> Iterator[VolumeMount]:
    volumes = {str(each.get("name")): each for each in at(spec, "volumes", default=[])}
    for mount in at(body, "volumeMounts", default=[]):
        volume = volumes.get(str(mount.get("name")), {})
        kind = next((key for key in volume if key != "name"), "")
        yield VolumeMount(
            path=str(mount.get("mountPath", "")).rstrip("/") or "/",
            kind=kind,
            claim=str(at(volume, "persistentVolumeClaim", "claimName", default="")),
            within=str(mount.get("subPath") or ""),
            size=str(at(volume, "emptyDir", "sizeLimit", default="")),
        )


def _required_labels(spec: Json) -> dict[str, str]:
    """Its node selector, and what its required node affinity says by one value."""
    terms = at(
        spec,
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        default=[],
    )
    asked = at(terms, 0, "matchExpressions", default=[]) if len(terms) == 1 else []
    single = {
        str(each["key"]): str(each["values"][0])
        for each in asked
        if each.get("operator") == "In" and len(each.get("values") or []) == 1
    }
    return {**single, **at(spec, "nodeSelector", default={})}
