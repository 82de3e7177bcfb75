"""The templates that run something: containers with one command of tidegate's, their pods and deadlines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Literal

from hera.workflows import Container, Parameter, RetryStrategy
from hera.workflows.models import (
    Affinity,
    Backoff,
    Cache,
    Capabilities,
    ConfigMapVolumeSource,
    EmptyDirVolumeSource,
    EnvFromSource,
    EnvVar,
    KeyToPath,
    LocalObjectReference,
    Memoize,
    PodSecurityContext,
    ResourceRequirements,
    SeccompProfile,
    SecretEnvSource,
    SecretVolumeSource,
    SecurityContext,
    Toleration,
    UserContainer,
    ValueFrom,
    Volume,
    VolumeMount,
)
from hera.workflows.models.io.k8s.apimachinery.pkg.api.resource import Quantity
from hera.workflows.models.io.k8s.apimachinery.pkg.util.intstr import IntOrString

from gates.analyses.command import CommandGate
from pipelines.authority.approvals import FROZEN, patience
from pipelines.model import PlanStep, StageName
from pipelines.spec.approvals import FreezeSpec
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import PatienceSpec
from pipelines.spec.workflow import BuildSpec
from pipelines.workflow import model as names
from pipelines.workflow.model import WorkflowInput
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.access import SECRETS_FOLDER
from tidegate.core.errors import ExitCode
from tidegate.core.names import config_map_key
from tidegate.core.units import format_duration

SPEC, STATE, SCRATCH, KUBE, LOGIN, SIGN = "spec", "state", "scratch", "kubeconfig", "login", "sign"
TRUST, LEDGER = "trust", "ledger"
"""Volumes."""


SecretKind = Literal["registry", "judge", "notify"]


def environment(blueprint: WorkflowInput, build: BuildSpec | None = None) -> list[EnvVar]:
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


def _of_steps(blueprint: WorkflowInput) -> dict[str, str]:
    """Which clusters, whom to believe, and who writes; a build loads a model that nobody has judged."""
    settings = blueprint.settings
    places = {
        "KUBECONFIG": settings.kubeconfig and f"{names.KUBE_FOLDER}/config",
        "TIDEGATE_TRUST": settings.trust and f"{names.TRUST_FOLDER}/trust.yaml",
        SECRETS_FOLDER: blueprint.secrets and names.SECRETS_FOLDER,
        "TIDEGATE_LEDGER_KEY": settings.ledger_key and f"{names.LEDGER_FOLDER}/{names.LEDGER_KEY}",
    }
    return {name: place for name, place in places.items() if place}


def secrets(blueprint: WorkflowInput, *kinds: SecretKind) -> list[EnvFromSource] | None:
    """Secrets that become variables, by their names: those of the kinds that a container has a use for."""
    named = [name for kind in kinds for name in getattr(blueprint.settings.secrets, kind)]
    return [EnvFromSource(secret_ref=SecretEnvSource(name=name)) for name in dict.fromkeys(named)] or None


def mounts(blueprint: WorkflowInput, *, spec: bool, step: bool = True) -> list[VolumeMount]:
    """The disks of a container; the spec where it is not in the ledger yet; what only a delivery's steps may read."""
    found = [
        VolumeMount(name=STATE, mount_path=names.STATE_FOLDER),
        VolumeMount(name=SCRATCH, mount_path=names.SCRATCH_FOLDER),
    ]
    if spec:
        found.append(VolumeMount(name=SPEC, mount_path=names.SPEC_FOLDER, read_only=True))
    if not step:
        return found
    only_steps = {each.name: _FOLDERS[each.name] for each in _given(blueprint)}
    only_steps |= {_volume(secret): f"{names.SECRETS_FOLDER}/{secret}" for secret in blueprint.secrets}
    return found + [VolumeMount(name=name, mount_path=folder, read_only=True) for name, folder in only_steps.items()]


def volumes(blueprint: WorkflowInput) -> list[Volume]:
    """What `mounts` names."""
    items = [KeyToPath(key=config_map_key(place), path=place) for place in blueprint.files]
    found = [
        Volume(name=SPEC, config_map=ConfigMapVolumeSource(name=names.files(blueprint.name), items=items)),
        Volume(name=STATE, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
        Volume(name=SCRATCH, empty_dir=EmptyDirVolumeSource(size_limit=Quantity(blueprint.settings.scratch))),
    ]
    return found + _given(blueprint) + _prometheus_secrets(blueprint)


def _prometheus_secrets(blueprint: WorkflowInput) -> list[Volume]:
    """Mounted, and no variables: a mounted Secret that is rotated is another file at once."""
    return [
        Volume(
            name=_volume(secret),
            secret=SecretVolumeSource(secret_name=secret, items=[KeyToPath(key=key, path=key) for key in keys]),
        )
        for secret, keys in blueprint.secrets.items()
    ]


def _volume(secret: str) -> str:
    """Names of volumes have no dots, and at most 63 characters."""
    return f"prometheus-{sha256(secret.encode()).hexdigest()[:8]}"


_FOLDERS = {KUBE: names.KUBE_FOLDER, TRUST: names.TRUST_FOLDER, LEDGER: names.LEDGER_FOLDER}


def _given(blueprint: WorkflowInput) -> list[Volume]:
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


SLACK = timedelta(minutes=15)
"""For a pod's own start, for bringing a version's files, and for a registry that is away for as long as is usual."""
OFFLINE = timedelta(hours=2)
"""The golden set has no limit of its own; a large one on a slow engine takes minutes."""
WEEK = timedelta(days=7)


def deadline(spec: Delivery, fleet: ClusterFleetSpec, step: PlanStep, steps: tuple[PlanStep, ...]) -> timedelta:
    """From the pod's start; people who are asked, and freezes, have their time within it."""
    waits = (patience(spec.approvals, asked, steps) for asked in step.approvals)
    frozen = sum(map(_length, spec.freeze), timedelta(0)) if step.stage in FROZEN else timedelta(0)
    return _working(spec, fleet, step) + silence(spec) + frozen + sum(waits, timedelta(0)) + SLACK


def closing(spec: Delivery, fleet: ClusterFleetSpec) -> timedelta:
    """Taking every region back, side by side, and trying again where one does not let itself."""
    git = spec.git.patience if spec.git else timedelta(0)
    return fleet.engine_starts_within + silence(spec) + spec.patience.back + git + SLACK


def silence(spec: Delivery) -> timedelta:
    """Of a region's API server, and of an MLflow that is given longer than usual."""
    return spec.patience.api + max(spec.patience.registry - PatienceSpec().registry, timedelta(0))


def _working(spec: Delivery, fleet: ClusterFleetSpec, step: PlanStep) -> timedelta:
    return sum(_parts(spec, fleet, step), timedelta(0))


def _parts(spec: Delivery, fleet: ClusterFleetSpec, step: PlanStep) -> Iterator[timedelta]:
    # Engines start when they are deployed, when more of them are wanted, and when old ones come back.
    if step.stage in (StageName.BUILD, StageName.DEPLOY, StageName.CANARY, StageName.PROMOTE):
        yield fleet.engine_starts_within
    if step.stage is StageName.OFFLINE:
        yield OFFLINE
        yield from (gate.within for gate in spec.gates.of(CommandGate).values())
    if step.stage is StageName.LOAD and spec.load:
        yield spec.load.within
    if step.stage is StageName.SHADOW and spec.shadow:
        yield spec.shadow.within
    if step.stage is StageName.CANARY and spec.canary:
        yield spec.canary.within
    if step.stage is StageName.GIT and spec.git:
        yield spec.git.patience
        yield spec.git.sync.within if spec.git.sync else timedelta(0)
    if step.stage is StageName.BAKE:
        yield spec.regions.bake


def _length(freeze: FreezeSpec) -> timedelta:
    """A week for one that comes every week: it is never longer, and a week is what nobody waits in vain."""
    if isinstance(freeze.start.day, int) or isinstance(freeze.end.day, int):
        return WEEK
    return freeze.end.day - freeze.start.day + timedelta(days=1)


# A pod can be lost in two ways, by https://github.com/argoproj/argo-workflows `inferFailedReason`. It is an Error
# when it was deleted, or when a container of Argo's own failed. It is Failed when it has a message of its own (evicted,
# preempted, rejected by the node, its node shut down) or no status of a container at all: then the exit code is that
# of the main container, -1 where that one told none, and 0 where it ended well in a pod that did not.
AGAIN = (-1, 0, 4, 137, 143)
"""The pod was lost, something outside was not there, or the process was killed. 1 and 3 are verdicts, and 2 would be
wrong again."""
IN_VAIN = (
    'lastRetry.message contains "OOMKilled"',
    'asInt(lastRetry.exitCode) == -1 && lastRetry.message contains "the specified deadline"',
)
"""The next try would need as much memory; an image that did not arrive within a whole deadline would not do so in the
next. A command that was killed at its deadline goes on where it was."""
BUILD_FAILED = (
    'lastRetry.message startsWith "build: "',
    'lastRetry.message startsWith "Pod failed before"',
)
"""The container before the main one failed: it has no exit code, and would fail again, on the same GPU."""


def again(blueprint: WorkflowInput, *in_vain: str, codes: tuple[int, ...] = AGAIN) -> RetryStrategy:
    """Pauses of 30 s, 1 min, 2 min and so on. `maxDuration` would count from the first try, and steps take long."""
    lost = f'(lastRetry.status == "Error" || asInt(lastRetry.exitCode) in {list(codes)})'
    expression = " && ".join((lost, *(f"!({each})" for each in (*IN_VAIN, *in_vain))))
    backoff = Backoff(duration="30s", factor=IntOrString(2))
    limit = blueprint.settings.retries
    return RetryStrategy(limit=limit, retry_policy="Always", expression=expression, backoff=backoff)


def opening(blueprint: WorkflowInput) -> Container:
    """Prints the delivery's id. Repeated by the same workflow it finds the delivery that it has opened."""
    command = [
        "stage",
        "open",
        f"{names.SPEC_FOLDER}/{blueprint.spec_file}",
        f"--version={names.argument(names.VERSION)}",
        f"--delivery={names.argument(names.DELIVERY)}",
        f"--key={names.UID}",
        f"--patience={format_duration(blueprint.settings.patience)}",
    ]
    within = SLACK + silence(blueprint.spec)
    return _command(blueprint, names.OPEN, command, within=int(within.total_seconds()), spec=True)


def staging(blueprint: WorkflowInput) -> Container:
    """Any step."""
    inputs = [Parameter(name=name) for name in (names.STEP, names.DELIVERY, names.DEADLINE)]
    command = [
        "stage",
        names.own_value(names.STEP),
        f"--delivery={names.own_value(names.DELIVERY)}",
        f"--key={names.UID}",
    ]
    return _command(blueprint, names.STAGE, command, within=names.own_value(names.DEADLINE), inputs=inputs)


def closure(blueprint: WorkflowInput) -> Container:
    """The exit handler: by the key, since a workflow that was stopped may not have come to know the id."""
    command = ["stage", "close", f"{names.SPEC_FOLDER}/{blueprint.spec_file}", f"--key={names.UID}"]
    within = closing(blueprint.spec, blueprint.fleet)
    return _command(blueprint, names.CLOSE, command, within=int(within.total_seconds()), spec=True)


def building(blueprint: WorkflowInput, build: BuildSpec) -> Container:
    """Builds the engine where its accelerator is, then pushes the image from the same disk and marks the version."""
    site = _site(blueprint)
    nodes = scheduling(site)
    layout, version = f"{names.STATE_FOLDER}/images", names.argument(names.VERSION)
    first = UserContainer(
        name="build",
        image=build.image,
        command=["tidegate"],
        args=[
            "engine",
            "build",
            f"models:/{blueprint.spec.model.name}/{version}",
            f"{names.SPEC_FOLDER}/{blueprint.spec_file}",
            f"--base={build.base}",
            f"--layout={layout}",
            *_signing(build),
        ],
        env=environment(blueprint, build),
        env_from=secrets(blueprint, "registry"),
        volume_mounts=[*mounts(blueprint, spec=True, step=False), *_secrets_of(build)],
        resources=resources(build.cpu, build.memory, gpu_amount(site)),
        security_context=security(),
    )
    return Container(
        name=names.ENGINE,
        image=build.image,
        command=["tidegate"],
        args=["engine", "push", layout, f"{build.repository}:{version}", "--mark", *_signing(build)],
        init_containers=[first],
        env=environment(blueprint, build),
        env_from=secrets(blueprint, "registry"),
        volume_mounts=[*mounts(blueprint, spec=False, step=False), *_secrets_of(build)],
        volumes=volumes_of_build(build),
        resources=resources(blueprint.settings.cpu, blueprint.settings.memory),
        security_context=security(),
        node_selector=nodes.get("nodeSelector"),
        tolerations=[Toleration.model_validate(each) for each in nodes.get("tolerations", ())],
        affinity=Affinity.model_validate(nodes["affinity"]) if "affinity" in nodes else None,
        active_deadline_seconds=int(build.within.total_seconds()),
        retry_strategy=again(blueprint, *BUILD_FAILED),
        # Argo Workflows remembers only what has an output; the layout's index names the image by its digest.
        outputs=[Parameter(name="image", value_from=ValueFrom(path=f"{layout}/index.json"))],
        memoize=Memoize(
            key=f"{version}-{blueprint.engine_key}",
            max_age=f"{build.remember.total_seconds() / 3600:.0f}h",
            cache=Cache(config_map=LocalObjectReference(name=names.memory(blueprint.name))),
        ),
    )


def _command(
    blueprint: WorkflowInput,
    name: str,
    arguments: list[str],
    *,
    within: int | str,
    spec: bool = False,
    inputs: list[Parameter] | None = None,
) -> Container:
    settings = blueprint.settings
    # Neither who opens a delivery nor who closes it asks a judge.
    judge: tuple[SecretKind, ...] = ("judge",) if name == names.STAGE else ()
    return Container(
        name=name,
        inputs=inputs,
        image=settings.image,
        command=["tidegate"],
        args=arguments,
        env=environment(blueprint),
        env_from=secrets(blueprint, "registry", "notify", *judge),
        volume_mounts=mounts(blueprint, spec=spec),
        resources=resources(settings.cpu, settings.memory),
        security_context=security(),
        node_selector=dict(settings.selector) or None,
        active_deadline_seconds=within,
        # Nobody stops the one who closes but its node: a step that exits so was asked to end with its delivery.
        retry_strategy=again(blueprint, codes=(*AGAIN, int(ExitCode.INTERRUPTED)) if name == names.CLOSE else AGAIN),
    )


def _secrets_of(build: BuildSpec) -> list[VolumeMount]:
    folders = {LOGIN: (build.credentials, names.LOGIN_FOLDER), SIGN: (build.sign_key, names.SIGN_FOLDER)}
    return [VolumeMount(name=name, mount_path=at, read_only=True) for name, (secret, at) in folders.items() if secret]


def _signing(build: BuildSpec) -> list[str]:
    return [f"--sign-key={names.SIGN_FOLDER}/{names.SIGN_KEY}"] if build.sign_key else []


def _site(blueprint: WorkflowInput) -> Site:
    """As for an engine that serves: a build wants the same nodes and the same accelerators."""
    engine = blueprint.spec.engine
    release = Release(
        delivery=blueprint.name,
        region=blueprint.spec.regions.names[0],
        version="1",
        digest="",
        image="",
        accelerator=str(engine.accelerator),
        accelerators=engine.accelerator_count,
    )
    return Site(fleet=blueprint.fleet, release=release)
