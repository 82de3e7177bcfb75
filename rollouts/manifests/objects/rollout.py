"""The Rollout of a region's engines, and the steps by which it brings a version to its users.

    0  setCanaryScale     engines for the copies
    1  pause {}           deployed: ready, no user; copies come and go here
    2  setWeight 5        Argo Rollouts sends users only when all engines asked for are ready
    3  pause {}           until somebody decides
    4  setWeight 25 ...

A weight that needs more engines than there are has a `setCanaryScale` before it. No step takes engines away: the next
weight would wait minutes for them. `matchTrafficWeight` is not used: at weight 0 it means no engine at all, and Argo
Rollouts then takes the canary's routes away. No pause ends by itself: a delivery that dies leaves the weight where it
is, and the background analysis watches.

Fields and their bounds: `pkg/apis/rollouts/v1alpha1/types.go` and `pkg/apis/rollouts/validation/validation.go` of
argo-rollouts.

An image of tidegate's own says what process 1 is, and is told only options; its entrypoint answers probes and drains.
One of somebody else's runs its own entrypoint, and answers vLLM's `/health`. It does not drain: Kubernetes takes a pod
that ends out of its Services and runs `preStop` at the same time, and while that sleeps, the engine still answers whom
gateways send, and finishes what it has begun.

Where engines share their cache of weights, an init container is the only one that may write there: an engine that was
taken over cannot change what the others have mapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rollouts.kube.resources import CONFIG_MAPS, ROLLOUTS
from rollouts.manifests.conventions import (
    DIGEST,
    ENGINE,
    LAUNCH,
    PORT,
    PORT_NAME,
    PUBLIC_KEYS,
    WEIGHTS,
    WEIGHTS_TOKEN,
    canary_service,
    public_keys,
    samples_request,
    stable_service,
)
from rollouts.manifests.manifest import UNPRIVILEGED, Release, Site, manifest
from rollouts.manifests.objects.capacity import gpu_amount, scheduling
from rollouts.manifests.pod_spec import whole_seconds
from rollouts.manifests.routers import ROUTERS
from rollouts.manifests.spec import CanarySpec
from rollouts.model import ImageLaunch
from tidegate.core.model import Json
from tidegate.core.names import CANARY, DELIVERY, MANAGED_BY, REGION, ROLE, STABLE, VERSION

HISTORY = 10
"""Old ReplicaSets that are remembered; Argo Rollouts wants no fewer than it keeps warm."""


def rollout(site: Site, analyses: tuple[Json, ...]) -> Json:
    """The object; `analyses` are AnalysisTemplates of the same namespace.

    With an autoscaler it says no number of engines, or saying it again would take some away.
    """
    fleet, release = site.fleet, site.release
    # Counted are all that were made in between, those that were rolled back too (`isRollbackWithinWindow`); and no
    # trial comes back through it past its gates, since each is a template of its own.
    window = {"rollbackWindow": {"revisions": HISTORY}} if fleet.previous else {}
    spec: Json = {
        **({} if fleet.autoscale else {"replicas": site.replicas}),
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": whole_seconds(fleet.pod.ready_within),
        **window,
        "selector": {"matchLabels": dict(site.selector)},
        "strategy": {"canary": _strategy(site, analyses)},
        "template": pod_template(site),
    }
    labels = {REGION: release.region, VERSION: release.version}
    return manifest(ROLLOUTS, site.name, site, labels=labels, spec=spec)


def steps_of(release: Release, canary: CanarySpec, replicas: int) -> list[Json]:
    """A pause at the beginning and after every weight; a promotion skips what is left.

    Engines of the canary are a share of the stable's, which an autoscaler may change; or a number at first. `replicas`
    are engines of the stable.
    """
    if canary.replicas or not release.mirror:
        number = canary.replicas or 1
        share = math.floor(100 * number / replicas)
        first: Json = {"replicas": number}
    else:
        # A canary that gets a copy of everything needs what the stable needs, or it looks worse than it is.
        share = release.mirror
        first = {"weight": share}
    steps: list[Json] = [{"setCanaryScale": first}, {"pause": {}}]
    for weight in release.weights:
        if weight > share:
            share = weight
            steps.append({"setCanaryScale": {"weight": share}})
        steps += [{"setWeight": weight}, {"pause": {}}]
    return steps


_ARGUMENTS: dict[str, Json] = {
    "region": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{REGION}']"}}},
    "version": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{VERSION}']"}}},
    "pod-template-hash": {"valueFrom": {"podTemplateHashValue": "Latest"}},
}
"""What an AnalysisTemplate may ask a Rollout to say, and where the Rollout has it."""


def _strategy(site: Site, analyses: tuple[Json, ...]) -> Json:
    fleet, previous, steps = site.fleet, site.fleet.previous, steps_of(site.release, site.fleet.canary, site.replicas)
    # The background analysis begins with users: before, nobody's requests are at stake.
    first = next((index for index, step in enumerate(steps) if step.get("setWeight")), None)
    watched = {**_analysis(analyses), "startingStep": first} if analyses and first is not None else {}
    return {
        "stableService": stable_service(site.name),
        "canaryService": canary_service(site.name),
        "stableMetadata": {"labels": {ROLE: STABLE}},
        "canaryMetadata": {"labels": {ROLE: CANARY}},
        "trafficRouting": ROUTERS[fleet.traffic].routing(site.name, site.namespace),
        # Of restarts alone. Where a route splits users, Argo Rollouts heeds neither (argo-rollouts#3284): a version on
        # trial has as many engines more as its steps say, and this is no place to bound them.
        "maxSurge": 1,
        "maxUnavailable": 0,
        # A canary without a ready engine loses its routes.
        "minPodsPerReplicaSet": 1,
        # With it users whom the stable has no engines for would stay on a canary that failed (argo-rollouts#3372).
        "dynamicStableScale": False,
        "scaleDownDelaySeconds": whole_seconds(previous.keep) if previous else 30,
        "abortScaleDownDelaySeconds": whole_seconds(fleet.canary.after_abort),
        **({"analysis": watched} if watched else {}),
        "steps": steps,
    }


def _analysis(templates: tuple[Json, ...]) -> Json:
    """With the arguments that have no value of their own, each once."""
    arguments = [each for template in templates for each in template["spec"].get("args", ())]
    asked = dict.fromkeys(each["name"] for each in arguments if not {"value", "valueFrom"} & each.keys())
    names = [{"templateName": template["metadata"]["name"]} for template in templates]
    return {"templates": names, "args": [{"name": name, **_ARGUMENTS[name]} for name in asked]}


SHARED_MEMORY, SCRATCH_FOLDER, CACHE_FOLDER, KEYS = "shared-memory", "scratch", "model-cache", "keys"
"""Names of the volumes."""
MOUNTS = {SHARED_MEMORY: "/dev/shm", SCRATCH_FOLDER: "/tmp", CACHE_FOLDER: "/var/cache/tidegate"}
CLAIM, CLAIM_FOLDER = "models", "/models"
"""The volume of a claim that holds weights already, and where it is mounted."""
_KEYS_FOLDER = "/etc/tidegate/keys"
_SAMPLES, _SAMPLES_FOLDER, _SAMPLES_FILE = "samples", "/etc/tidegate/samples", "request.json"

_HOME: Json = {"name": "HOME", "value": MOUNTS[SCRATCH_FOLDER]}
"""Libraries write below the home folder, and nothing else of the image can be written to."""
_LOGNAME: Json = {"name": "LOGNAME", "value": "engine"}
"""PyTorch names a cache folder after its user, and no image knows ours by a name."""

_CONTAINED: Json = {
    "securityContext": UNPRIVILEGED,
    # How it died is told by the pod itself, in the last lines of its log.
    "terminationMessagePolicy": "FallbackToLogsOnError",
}

READY, HEALTH = "/tidegate/ready", "/tidegate/health"
"""Answered by the entrypoint: whether the engine has answered its warm-up and does not drain; whether it generates."""
VLLM_HEALTH = "/health"
"""Of vLLM: 200 once it takes requests."""
HEALTH_DEADLINE = 10
"""Seconds that the entrypoint gives one test inference; a probe has to wait longer than that."""
MARGIN_SECONDS = 30
"""Beyond the drain: process 1 ends at most 20 s after its grace."""


def pod_template(site: Site) -> Json:
    """Everything that makes a version's pods; what changes here makes a new revision."""
    release, pod, launch = site.release, site.fleet.pod, site.release.launch
    annotations = {
        **({DIGEST: release.digest} if release.digest else {}),
        **({LAUNCH: launch.model_dump_json(exclude_defaults=True)} if launch else {}),
    }
    before = _bringing(site)
    security = {
        "runAsNonRoot": True,
        "runAsUser": pod.user,
        "runAsGroup": pod.user,
        "fsGroup": pod.user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec: Json = {
        "serviceAccountName": site.account,
        "automountServiceAccountToken": False,
        # Kubernetes writes a variable for each Service of the namespace, some of which vLLM would take for its own.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": whole_seconds(pod.drain) + MARGIN_SECONDS,
        "securityContext": security,
        **({"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]} if pod.pull_secrets else {}),
        **scheduling(site),
        # One zone or node that is gone should not be all engines; rather all in one than none at all.
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": topology,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(site.selector)},
            }
            for topology in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ],
        **({"initContainers": before} if before else {}),
        "containers": [_of_theirs(site, launch) if launch else _of_ours(site)],
        "volumes": _volumes(site),
    }
    labels = {DELIVERY: site.name, REGION: release.region, VERSION: release.version}
    return {"metadata": {"labels": labels, **({"annotations": annotations} if annotations else {})}, "spec": spec}


def _of_ours(site: Site) -> Json:
    """The container of an image that tidegate built."""
    pod, release = site.fleet.pod, site.release
    options = {
        "--port": str(PORT),
        "--grace": f"{pod.drain.total_seconds():g}",
        "--linger": f"{pod.linger.total_seconds():g}",
        "--start-deadline": str(whole_seconds(pod.start_within)),
        "--health-deadline": str(HEALTH_DEADLINE),
        **({"--spot": str(site.fleet.nodes.cloud)} if site.fleet.nodes.asks_for_notice else {}),
    }
    told = [*(word for option in options.items() for word in option), *_signed(site)]
    mounts = [_mount(name, read_only=name == CACHE_FOLDER and bool(pod.cache.claim)) for name in MOUNTS] + _keys(site)
    if site.keeps_samples:
        told += ["--samples", f"{_SAMPLES_FOLDER}/{_SAMPLES_FILE}", "--known-as", release.version]
        # The folder and not the file: a mounted file would never change.
        mounts.append({"name": _SAMPLES, "mountPath": _SAMPLES_FOLDER, "readOnly": True})
    # Anyone who pulls needs the token, and nobody else.
    env = [_HOME, *([] if pod.cache.claim else _token(site))]
    probes = {
        "startupProbe": _begun(site, READY),
        "readinessProbe": _probe(READY, 2, failures=2),
        "livenessProbe": _probe(HEALTH, 10, failures=3, timeout=HEALTH_DEADLINE + 5),
    }
    # No hook before the end: process 1 drains when it is told to end, and lingers first.
    return _engine(site, told, env, mounts, probes)


def _of_theirs(site: Site, launch: ImageLaunch) -> Json:
    """The container of an image that is somebody else's."""
    mounts = [_mount(name) for name in (SHARED_MEMORY, SCRATCH_FOLDER)]
    mounts += [_mount(CACHE_FOLDER, read_only=True)] if launch.pull else []
    mounts += [{"name": CLAIM, "mountPath": CLAIM_FOLDER, "readOnly": True}] if launch.claim else []
    # One that cuts its answers when it is told to stop has all of the drain for them before.
    left_alone = site.fleet.pod.linger if launch.ends_its_answers else site.fleet.pod.drain
    probes = {
        "startupProbe": _begun(site, VLLM_HEALTH, timeout=5),
        "readinessProbe": _probe(VLLM_HEALTH, 5, failures=3, timeout=5),
        # An engine that is busy answers late: it is given a minute before it is started again.
        "livenessProbe": _probe(VLLM_HEALTH, 10, failures=6, timeout=10),
    }
    env, sleep = [_HOME, _LOGNAME, *_variables(launch.environment)], {"sleep": {"seconds": whole_seconds(left_alone)}}
    return _engine(site, list(launch.arguments), env, mounts, {**probes, "lifecycle": {"preStop": sleep}})


def _engine(site: Site, args: list[str], env: list[Json], mounts: list[Json], watched: Json) -> Json:
    pod, gpus = site.fleet.pod, gpu_amount(site)
    return {
        "name": ENGINE,
        "image": site.release.image,
        "args": args,
        "env": env,
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        # No limit on processors: an engine that is held up between two tokens keeps its GPU waiting.
        "resources": {
            "requests": {"cpu": pod.cpu, "memory": pod.memory, **gpus},
            "limits": {"memory": pod.memory, **gpus},
        },
        **watched,
        **_CONTAINED,
        "volumeMounts": mounts,
    }


def _begun(site: Site, path: str, *, timeout: int = 1) -> Json:
    """Nothing else is asked until an engine has begun, for which it has `pod.start_within`."""
    tries = math.ceil(whole_seconds(site.fleet.pod.start_within) / 5)
    return _probe(path, 5, failures=tries, timeout=timeout)


def _probe(path: str, period: int, *, failures: int, timeout: int = 1) -> Json:
    """An HTTP probe of the engine's port; `period` and `timeout` in seconds."""
    where = {"path": path, "port": PORT_NAME}
    return {"httpGet": where, "periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}


def _bringing(site: Site) -> list[Json]:
    """The container that brings weights and proves them: into a shared cache, or for an image of somebody else's.

    None where each pod has a cache of its own, or the image needs nothing brought.
    """
    pod, release = site.fleet.pod, site.release
    if release.launch:
        pull = release.launch.pull
        if not pull:
            return []
        image, command, env, keys = pull.image, list(pull.command), _variables(pull.environment), list[Json]()
        more = {"envFrom": [{"secretRef": {"name": name}} for name in pull.secrets]} if pull.secrets else {}
    elif pod.cache.claim:
        image, env, keys, more = release.image, _token(site), _keys(site), {}
        command = [pod.python, "-m", "tidegate_entrypoint", "pull", *_signed(site)]
    else:
        return []
    container = {
        "name": WEIGHTS,
        "image": image,
        "command": command,
        "env": [_HOME, *env],
        **more,
        "resources": {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory}},
        **_CONTAINED,
        "volumeMounts": [*(_mount(name) for name in (SCRATCH_FOLDER, CACHE_FOLDER)), *keys],
    }
    return [container]


def _mount(name: str, read_only: bool = False) -> Json:
    return {"name": name, "mountPath": MOUNTS[name], **({"readOnly": True} if read_only else {})}


def _keys(site: Site) -> list[Json]:
    return [{"name": KEYS, "mountPath": _KEYS_FOLDER, "readOnly": True}] if site.release.public_keys else []


def _signed(site: Site) -> list[str]:
    return ["--public-key", f"{_KEYS_FOLDER}/{PUBLIC_KEYS}"] if site.release.public_keys else []


def _token(site: Site) -> list[Json]:
    secret = site.fleet.pod.cache.secret
    token = {"secretKeyRef": {"name": secret, "key": "token"}}
    return [{"name": WEIGHTS_TOKEN, "valueFrom": token}] if secret else []


def _variables(environment: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in sorted(environment.items())]


def _volumes(site: Site) -> list[Json]:
    pod, launch = site.fleet.pod, site.release.launch
    kept = {"persistentVolumeClaim": {"claimName": pod.cache.claim}}
    found: list[Json] = [
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": pod.shared_memory}},
        {"name": SCRATCH_FOLDER, "emptyDir": {}},
        {"name": CACHE_FOLDER, **(kept if pod.cache.claim else {"emptyDir": {"sizeLimit": pod.cache.size}})},
    ]
    if site.release.public_keys:
        found.append({"name": KEYS, "configMap": {"name": public_keys(site.name)}})
    if site.keeps_samples:
        # It need not be there. A kubelet brings what changes in it into pods that run: nothing starts again for it.
        found.append({"name": _SAMPLES, "configMap": {"name": samples_request(site.name), "optional": True}})
    if launch and launch.claim:
        found.append({"name": CLAIM, "persistentVolumeClaim": {"claimName": launch.claim, "readOnly": True}})
    return found


def can_keep_samples(pod: Json, delivery: str) -> bool:
    """Whether a pod was made so that it hears what it is to keep of users' requests."""
    volumes = (pod.get("spec") or {}).get("volumes") or []
    return any((each.get("configMap") or {}).get("name") == samples_request(delivery) for each in volumes)


def samples_object(delivery: str, text: str) -> Json:
    """The ConfigMap by which engines hear what they are to keep."""
    metadata = {"name": samples_request(delivery), "labels": {**MANAGED_BY, DELIVERY: delivery}}
    kind = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind}
    return {**kind, "metadata": metadata, "data": {_SAMPLES_FILE: text}}
