"""What all containers of a workflow have in common: variables, disks, limits. Secrets are named, never written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hera.workflows.models import (
    Capabilities,
    ConfigMapVolumeSource,
    EmptyDirVolumeSource,
    EnvFromSource,
    EnvVar,
    KeyToPath,
    PodSecurityContext,
    ResourceRequirements,
    SeccompProfile,
    SecretEnvSource,
    SecretVolumeSource,
    SecurityContext,
    Volume,
    VolumeMount,
)
from hera.workflows.models.io.k8s.apimachinery.pkg.api.resource import Quantity

from pipelines.workflow import conventions as names
from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.spec import BuildSpec

SPEC, STATE, SCRATCH, KUBE, LOGIN, SIGN = "spec", "state", "scratch", "kubeconfig", "login", "sign"
TRUST, LEDGER = "trust", "ledger"
"""Volumes."""


SecretKind = Literal["registry", "judge", "notify"]


def environment(blueprint: Blueprint, build: BuildSpec | None = None) -> list[EnvVar]:
    """Variables that are no secrets."""
    variables = {
        "MLFLOW_TRACKING_URI": blueprint.settings.tracking_uri,
        "TIDEGATE_STATE": names.STATE_FOLDER,
        "HOME": names.STATE_FOLDER,
        "TIDEGATE_ROOT": names.SPEC_FOLDER,
    }
    if not build:
        variables |= _of_steps(blueprint)
    if build and build.credentials:
        variables["DOCKER_CONFIG"] = names.LOGIN_FOLDER
    return [EnvVar(name=name, value=value) for name, value in variables.items()]


def _of_steps(blueprint: Blueprint) -> dict[str, str]:
    """Which clusters, whom to believe, and who writes; a build loads a model that nobody has judged."""
    settings = blueprint.settings
    places = {
        "KUBECONFIG": settings.kubeconfig and f"{names.KUBE_FOLDER}/config",
        "TIDEGATE_TRUST": settings.trust and f"{names.TRUST_FOLDER}/trust.yaml",
        "TIDEGATE_LEDGER_KEY": settings.ledger_key and f"{names.LEDGER_FOLDER}/{names.LEDGER_KEY}",
    }
    return {name: place for name, place in places.items() if place}


def secrets(blueprint: Blueprint, *kinds: SecretKind) -> list[EnvFromSource] | None:
    """Secrets that become variables, by their names: those of the kinds that a container has a use for."""
    named = [name for kind in kinds for name in getattr(blueprint.settings.secrets, kind)]
    return [EnvFromSource(secret_ref=SecretEnvSource(name=name)) for name in dict.fromkeys(named)] or None


def mounts(blueprint: Blueprint, *, spec: bool, step: bool = True) -> list[VolumeMount]:
    """The disks of a container; the spec where it is not in the ledger yet; what only a delivery's steps may read."""
    found = [
        VolumeMount(name=STATE, mount_path=names.STATE_FOLDER),
        VolumeMount(name=SCRATCH, mount_path=names.SCRATCH_FOLDER),
    ]
    if spec:
        found.append(VolumeMount(name=SPEC, mount_path=names.SPEC_FOLDER, read_only=True))
    only_steps = {each.name: _FOLDERS[each.name] for each in _given(blueprint) if step}
    return found + [VolumeMount(name=name, mount_path=folder, read_only=True) for name, folder in only_steps.items()]


def volumes(blueprint: Blueprint) -> list[Volume]:
    """What `mounts` names."""
    items = [KeyToPath(key=key_of(place), path=place) for place in blueprint.files]
    found = [
        Volume(name=SPEC, config_map=ConfigMapVolumeSource(name=names.files(blueprint.name), items=items)),
        Volume(name=STATE, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
        Volume(name=SCRATCH, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
    ]
    return found + _given(blueprint)


_FOLDERS = {KUBE: names.KUBE_FOLDER, TRUST: names.TRUST_FOLDER, LEDGER: names.LEDGER_FOLDER}


def _given(blueprint: Blueprint) -> list[Volume]:
    """What the operator put into the cluster for steps."""
    settings = blueprint.settings
    found = []
    if settings.kubeconfig:
        found.append(Volume(name=KUBE, secret=SecretVolumeSource(secret_name=settings.kubeconfig)))
    if settings.trust:
        found.append(Volume(name=TRUST, config_map=ConfigMapVolumeSource(name=settings.trust)))
    if settings.ledger_key:
        found.append(Volume(name=LEDGER, secret=SecretVolumeSource(secret_name=settings.ledger_key)))
    return found


def volumes_of_build(build: BuildSpec) -> list[Volume]:
    """A larger disk under the same name, who may push, and who signs."""
    found = [Volume(name=STATE, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(build.scratch)))]
    if build.credentials:
        items = [KeyToPath(key=".dockerconfigjson", path="config.json")]
        found.append(Volume(name=LOGIN, secret=SecretVolumeSource(secret_name=build.credentials, items=items)))
    if build.sign_key:
        found.append(Volume(name=SIGN, secret=SecretVolumeSource(secret_name=build.sign_key)))
    return found


def key_of(place: str) -> str:
    """Of a file in the ConfigMap, where keys know no folders."""
    return place.replace("/", "_")


def resources(cpu: str, memory: str, accelerators: Mapping[str, str] | None = None) -> ResourceRequirements:
    """Memory has a limit, or a step could take the node's; processors have none, or it would wait for nothing."""
    return ResourceRequirements.model_validate(
        {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory, **(accelerators or {})}}
    )


def security() -> SecurityContext:
    """No step needs any privilege, or writes anywhere but on its own disks."""
    return SecurityContext(
        allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"]), read_only_root_filesystem=True
    )


def whose() -> PodSecurityContext:
    """Whom processes run as; disks are theirs. As much as Pod Security "restricted" asks for."""
    return PodSecurityContext(
        run_as_non_root=True,
        run_as_user=names.USER,
        run_as_group=names.USER,
        fs_group=names.USER,
        seccomp_profile=SeccompProfile(type="RuntimeDefault"),
    )
