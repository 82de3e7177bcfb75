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
    if blueprint.settings.kubeconfig and not build:
        variables["KUBECONFIG"] = f"{names.KUBE_FOLDER}/config"
    if build and build.credentials:
        variables["DOCKER_CONFIG"] = names.LOGIN_FOLDER
    return [EnvVar(name=name, value=value) for name, value in variables.items()]


def secrets(blueprint: Blueprint, *kinds: SecretKind) -> list[EnvFromSource] | None:
    """Secrets that become variables, by their names: those of the kinds that a container has a use for."""
    named = [name for kind in kinds for name in getattr(blueprint.settings.secrets, kind)]
    return [EnvFromSource(secret_ref=SecretEnvSource(name=name)) for name in dict.fromkeys(named)] or None


def mounts(blueprint: Blueprint, *, spec: bool, clusters: bool = True) -> list[VolumeMount]:
    """The disks of a container; the spec where it is not in the ledger yet; the keys to clusters where it asks them."""
    found = [
        VolumeMount(name=STATE, mount_path=names.STATE_FOLDER),
        VolumeMount(name=SCRATCH, mount_path=names.SCRATCH_FOLDER),
    ]
    if spec:
        found.append(VolumeMount(name=SPEC, mount_path=names.SPEC_FOLDER, read_only=True))
    if blueprint.settings.kubeconfig and clusters:
        found.append(VolumeMount(name=KUBE, mount_path=names.KUBE_FOLDER, read_only=True))
    return found


def volumes(blueprint: Blueprint) -> list[Volume]:
    """What `mounts` names."""
    items = [KeyToPath(key=key_of(place), path=place) for place in blueprint.files]
    found = [
        Volume(name=SPEC, config_map=ConfigMapVolumeSource(name=names.files(blueprint.name), items=items)),
        Volume(name=STATE, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
        Volume(name=SCRATCH, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
    ]
    if blueprint.settings.kubeconfig:
        found.append(Volume(name=KUBE, secret=SecretVolumeSource(secret_name=blueprint.settings.kubeconfig)))
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
