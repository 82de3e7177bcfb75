"""The WorkflowTemplate of a delivery: a DAG for all of it, one for a region, the containers of their steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from itertools import groupby
from typing import Literal, NamedTuple

from hera.workflows import DAG, Container, Parameter, RetryStrategy, Task, WorkflowTemplate, models
from hera.workflows.models.io.k8s.apimachinery.pkg.util.intstr import IntOrString

from gates.analyses.command import CommandGate
from pipelines.authority.approvals import FROZEN, patience
from pipelines.model import PlanStep, StageName
from pipelines.spec.approvals import FreezeSpec
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import PatienceSpec
from pipelines.spec.workflow import BuildSpec, account_of
from pipelines.workflow import model as names
from pipelines.workflow.model import WorkflowInput
from rollouts.manifests.manifest import Release, Site
from rollouts.manifests.objects.capacity import gpu_amount, scheduling
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from tidegate.core.access import SECRETS_FOLDER
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY, config_map_key, object_name
from tidegate.core.units import format_duration

SecretKind = Literal["registry", "judge", "notify"]


class Disk(NamedTuple):
    """A volume, and where containers find it; what is not written by them is mounted read-only."""

    volume: models.Volume
    folder: str
    step: bool = False
    """For a delivery's steps alone: a build loads a model that nobody has judged."""

    @property
    def mount(self) -> models.VolumeMount:
        """In a container."""
        read_only = None if self.volume.empty_dir else True
        return models.VolumeMount(name=self.volume.name, mount_path=self.folder, read_only=read_only)


def _disk(name: str, folder: str, source: Mapping[str, object], *, step: bool = False) -> Disk:
    return Disk(models.Volume.model_validate({"name": name, **source}), folder, step)


def _secret(name: str, keys: Mapping[str, str] | None = None) -> dict[str, object]:
    """All of its keys, or some as files of other names."""
    items = [{"key": key, "path": path} for key, path in (keys or {}).items()]
    return {"secret": {"secretName": name, "items": items or None}}


def disks(blueprint: WorkflowInput) -> Iterator[Disk]:
    """The spec, room to work, and what the operator put into the cluster for steps."""
    settings = blueprint.settings
    files = [{"key": config_map_key(place), "path": place} for place in blueprint.files]
    yield _disk("spec", names.SPEC_FOLDER, {"configMap": {"name": names.files(blueprint.name), "items": files}})
    for name, folder in (("state", names.STATE_FOLDER), ("scratch", names.SCRATCH_FOLDER)):
        yield _disk(name, folder, {"emptyDir": {"sizeLimit": settings.scratch}})
    if settings.kubeconfig:
        yield _disk("kubeconfig", names.KUBE_FOLDER, _secret(settings.kubeconfig), step=True)
    if settings.trust:
        yield _disk("trust", names.TRUST_FOLDER, {"configMap": {"name": settings.trust}}, step=True)
    if settings.ledger_key:
        yield _disk("ledger", names.LEDGER_FOLDER, _secret(settings.ledger_key), step=True)
    # Mounted, and no variables: a mounted Secret that is rotated is another file at once.
    for secret, keys in blueprint.secrets.items():
        # Names of volumes have no dots, and at most 63 characters.
        name = f"prometheus-{sha256(secret.encode()).hexdigest()[:8]}"
        own = {key: key for key in keys}
        yield _disk(name, f"{names.SECRETS_FOLDER}/{secret}", _secret(secret, own), step=True)


def environment(blueprint: WorkflowInput, build: BuildSpec | None = None) -> list[models.EnvVar]:
    """Variables that are no secrets; which clusters, whom to believe and who writes are a step's alone."""
    settings = blueprint.settings
    variables: dict[str, str | None] = {
        "MLFLOW_TRACKING_URI": settings.tracking_uri,
        "TIDEGATE_STATE": names.STATE_FOLDER,
        "HOME": names.STATE_FOLDER,
        "TIDEGATE_ROOT": names.SPEC_FOLDER,
    }
    if build:
        variables |= {"DOCKER_CONFIG": build.credentials and names.LOGIN_FOLDER}
    else:
        variables |= {
            "KUBECONFIG": settings.kubeconfig and f"{names.KUBE_FOLDER}/config",
            "TIDEGATE_TRUST": settings.trust and f"{names.TRUST_FOLDER}/trust.yaml",
            SECRETS_FOLDER: names.SECRETS_FOLDER if blueprint.secrets else None,
            "TIDEGATE_LEDGER_KEY": settings.ledger_key and f"{names.LEDGER_FOLDER}/{names.LEDGER_KEY}",
        }
    return [models.EnvVar(name=name, value=value) for name, value in variables.items() if value]


def secrets(blueprint: WorkflowInput, *kinds: SecretKind) -> list[models.EnvFromSource] | None:
    """Secrets that become variables, by their names: those of the kinds that a container has a use for."""
    named = [name for kind in kinds for name in getattr(blueprint.settings.secrets, kind)]
    found = [models.SecretEnvSource(name=name) for name in dict.fromkeys(named)]
    return [models.EnvFromSource(secret_ref=each) for each in found] or None


def resources(cpu: str, memory: str, accelerators: Mapping[str, str] | None = None) -> models.ResourceRequirements:
    """Memory has a limit, or a step could take the node's; processors have none, or it would wait for nothing."""
    return models.ResourceRequirements.model_validate(
        {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory, **(accelerators or {})}}
    )


def security() -> models.SecurityContext:
    """No step needs any privilege, or writes anywhere but on its own disks."""
    drop = models.Capabilities(drop=["ALL"])
    return models.SecurityContext(allow_privilege_escalation=False, capabilities=drop, read_only_root_filesystem=True)


def whose() -> models.PodSecurityContext:
    """Whom processes run as; disks are theirs. As much as Pod Security "restricted" asks for."""
    return models.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=names.USER,
        run_as_group=names.USER,
        fs_group=names.USER,
        seccomp_profile=models.SeccompProfile(type="RuntimeDefault"),
    )


SLACK = timedelta(minutes=15)
"""For a pod's own start, for bringing a version's files, and for a registry that is away for as long as is usual."""
OFFLINE = timedelta(hours=2)
"""The golden set has no limit of its own; a large one on a slow engine takes minutes."""
WEEK = timedelta(days=7)


def deadline(spec: Delivery, fleet: ClusterFleetSpec, step: PlanStep, steps: tuple[PlanStep, ...]) -> timedelta:
    """From the pod's start; people who are asked, and freezes, have their time within it."""
    waits = (patience(spec.approvals, asked, steps) for asked in step.approvals)
    frozen = (_length(each) for each in (spec.freeze if step.stage in FROZEN else ()))
    return sum((*_parts(spec, fleet, step), *waits, *frozen), silence(spec) + SLACK)


def closing(spec: Delivery, fleet: ClusterFleetSpec) -> timedelta:
    """Taking every region back, side by side, and trying again where one does not let itself; or telling Git."""
    git = spec.git.patience if spec.git else timedelta(0)
    return fleet.engine_starts_within + silence(spec) + spec.patience.back + git + SLACK


def silence(spec: Delivery) -> timedelta:
    """Of a region's API server, and of an MLflow that is given longer than usual."""
    return spec.patience.api + max(spec.patience.registry - PatienceSpec().registry, timedelta(0))


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
    backoff = models.Backoff(duration="30s", factor=IntOrString(2))
    limit = blueprint.settings.retries
    return RetryStrategy(limit=limit, retry_policy="Always", expression=expression, backoff=backoff)


def opening(blueprint: WorkflowInput) -> Container:
    """Prints the delivery's id. Repeated by the same workflow it finds the delivery that it has opened."""
    command = [
        *("stage", "open", f"{names.SPEC_FOLDER}/{blueprint.spec_file}"),
        f"--version={names.argument(names.VERSION)}",
        f"--key={names.UID}",
        f"--patience={format_duration(blueprint.settings.patience)}",
    ]
    within = SLACK + silence(blueprint.spec)
    return _command(blueprint, names.OPEN, command, within=int(within.total_seconds()), spec=True)


def staging(blueprint: WorkflowInput) -> Container:
    """Any step."""
    inputs = [Parameter(name=name) for name in (names.STEP, names.DELIVERY, names.DEADLINE)]
    step, delivery = names.own_value(names.STEP), names.own_value(names.DELIVERY)
    command = ["stage", step, f"--delivery={delivery}", f"--key={names.UID}"]
    return _command(blueprint, names.STAGE, command, within=names.own_value(names.DEADLINE), inputs=inputs)


def closure(blueprint: WorkflowInput) -> Container:
    """The exit handler: by the key, since a workflow that was stopped may not have come to know the id."""
    command = ["stage", "close", f"{names.SPEC_FOLDER}/{blueprint.spec_file}", f"--key={names.UID}"]
    within = closing(blueprint.spec, blueprint.fleet)
    return _command(blueprint, names.CLOSE, command, within=int(within.total_seconds()), spec=True)


def building(blueprint: WorkflowInput, build: BuildSpec) -> Container:
    """Builds the engine where its accelerator is, then pushes the image from the same disk and marks the version."""
    engine = blueprint.spec.engine
    if not isinstance(blueprint.fleet, ArgoFleetSpec):
        raise UsageError("workflow.build: found a fleet of others, which says no node for it; expected no `build`")
    # As for an engine that serves: a build wants the same nodes and the same accelerators.
    release = Release(
        delivery=blueprint.name,
        region=blueprint.spec.regions.names[0],
        version="1",
        digest="",
        image="",
        accelerator=str(engine.accelerator),
        accelerators=engine.accelerator_count,
    )
    site = Site(fleet=blueprint.fleet, release=release)
    nodes = scheduling(site)
    layout, version = f"{names.STATE_FOLDER}/images", names.argument(names.VERSION)
    # A larger disk under the same name, who may push, and who signs.
    own = [_disk("state", names.STATE_FOLDER, {"emptyDir": {"sizeLimit": build.scratch}})]
    if build.credentials:
        own.append(_disk("login", names.LOGIN_FOLDER, _secret(build.credentials, {".dockerconfigjson": "config.json"})))
    if build.sign_key:
        own.append(_disk("sign", names.SIGN_FOLDER, _secret(build.sign_key)))
    shared = [each for each in disks(blueprint) if not each.step and each.volume.name != "state"]
    sign = [f"--sign-key={names.SIGN_FOLDER}/{names.SIGN_KEY}"] if build.sign_key else []
    first = models.UserContainer(
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
            *sign,
        ],
        env=environment(blueprint, build),
        env_from=secrets(blueprint, "registry"),
        volume_mounts=[each.mount for each in (*shared, *own)],
        resources=resources(build.cpu, build.memory, gpu_amount(site)),
        security_context=security(),
    )
    return Container(
        name=names.ENGINE,
        image=build.image,
        command=["tidegate"],
        args=["engine", "push", layout, f"{build.repository}:{version}", "--mark", *sign],
        init_containers=[first],
        env=environment(blueprint, build),
        env_from=secrets(blueprint, "registry"),
        volume_mounts=[each.mount for each in (*shared, *own) if each.folder != names.SPEC_FOLDER],
        volumes=[each.volume for each in own],
        resources=resources(blueprint.settings.cpu, blueprint.settings.memory),
        security_context=security(),
        node_selector=nodes.get("nodeSelector"),
        tolerations=[models.Toleration.model_validate(each) for each in nodes.get("tolerations", ())],
        affinity=models.Affinity.model_validate(nodes["affinity"]) if "affinity" in nodes else None,
        active_deadline_seconds=int(build.within.total_seconds()),
        retry_strategy=again(blueprint, *BUILD_FAILED),
        # Argo Workflows remembers only what has an output; the layout's index names the image by its digest.
        outputs=[Parameter(name="image", value_from=models.ValueFrom(path=f"{layout}/index.json"))],
        memoize=models.Memoize(
            key=f"{version}-{blueprint.engine_key}",
            max_age=f"{build.remember.total_seconds() / 3600:.0f}h",
            cache=models.Cache(config_map=models.LocalObjectReference(name=names.memory(blueprint.name))),
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
        volume_mounts=[each.mount for each in disks(blueprint) if spec or each.folder != names.SPEC_FOLDER],
        resources=resources(settings.cpu, settings.memory),
        security_context=security(),
        node_selector=dict(settings.selector) or None,
        active_deadline_seconds=within,
        # Nobody stops the one who closes but its node: a step that exits so was asked to end with its delivery.
        retry_strategy=again(blueprint, codes=(*AGAIN, int(ExitCode.INTERRUPTED)) if name == names.CLOSE else AGAIN),
    )


def workflow_template(blueprint: WorkflowInput) -> Json:
    """The whole object, as `argo submit --from workflowtemplate/NAME -p version=7` wants it."""
    settings, labels = blueprint.settings, {**MANAGED_BY, DELIVERY: blueprint.name}
    build = settings.build
    keep = int(settings.keep.total_seconds())
    template = WorkflowTemplate(
        name=blueprint.name,
        namespace=blueprint.namespace,
        labels=labels,
        entrypoint=names.DELIVER,
        on_exit=names.CLOSE,
        arguments=[Parameter(name=names.VERSION, description="Number of the model version.")],
        templates=[
            _deliver(blueprint),
            _region(blueprint),
            *([building(blueprint, build)] if build else []),
            opening(blueprint),
            staging(blueprint),
            closure(blueprint),
        ],
        volumes=[each.volume for each in disks(blueprint)],
        service_account_name=account_of(blueprint.name),
        image_pull_secrets=[models.LocalObjectReference(name=name) for name in settings.pull_secrets] or None,
        security_context=whose(),
        synchronization=models.Synchronization(mutexes=[models.Mutex(name=mutex(blueprint.spec.model.name))]),
        pod_gc=models.PodGC(strategy="OnPodSuccess"),
        pod_metadata=models.Metadata(labels={**MANAGED_BY, names.STEPS_OF: blueprint.name}),
        workflow_metadata=models.WorkflowMetadata(labels=labels),
        ttl_strategy=models.TTLStrategy(seconds_after_completion=keep),
    )
    rendered: Json = template.to_dict()
    return rendered


def mutex(model: str) -> str:
    """What one delivery of a model holds at a time; others wait in line."""
    return object_name(f"tidegate-{model}")


def _deliver(blueprint: WorkflowInput) -> DAG:
    """One task after the other; in a wave, its regions side by side."""
    with DAG(name=names.DELIVER) as dag:
        before = Task(name=names.ENGINE, template=names.ENGINE) if blueprint.settings.build else None
        before = _after(before, Task(name=names.OPEN, template=names.OPEN))
        for (wave, regional), steps in groupby(blueprint.steps, key=lambda step: (step.wave, step.region is not None)):
            if regional:
                regions = list(dict.fromkeys(step.region for step in steps))
                here = {names.REGION: "{{item}}", names.DELIVERY: names.RESULT}
                task = Task(name=f"wave-{wave}", template=names.REGION, arguments=here, with_items=regions)
                before = _after(before, task)
                continue
            for step in steps:
                name = f"{step.stage}-{step.wave}" if step.wave else str(step.stage)
                before = _after(before, _task(blueprint, name, step.id, names.RESULT, [step]))
    return dag


def _region(blueprint: WorkflowInput) -> DAG:
    """The way of the region with the most steps; others have parts of it in the same order, and pass the rest by."""
    lanes: dict[str, list[tuple[StageName, int | None]]] = {}
    for step in blueprint.steps:
        if step.region:
            lanes.setdefault(step.region, []).append((step.stage, step.weight))
    longest = max(lanes.values(), key=len)
    for lane in lanes.values():
        assert [turn for turn in longest if turn in lane] == lane, "regions go in different orders"
    here, delivery = names.own_value(names.REGION), names.own_value(names.DELIVERY)
    with DAG(name=names.REGION, inputs=[Parameter(name=name) for name in (names.REGION, names.DELIVERY)]) as dag:
        before = None
        for stage, weight in longest:
            steps = [step for step in blueprint.steps if (step.stage, step.weight) == (stage, weight)]
            own = [name for name, lane in lanes.items() if (stage, weight) in lane]
            step_id = PlanStep(stage=stage, region=here, weight=weight).id
            name = str(stage) if weight is None else f"{stage}-{weight}"
            task = _task(blueprint, name, step_id, delivery, steps)
            if len(own) < len(lanes):
                # In quotes: `eu-west-1` would be a subtraction.
                task.when = " || ".join(f"'{here}' == '{region}'" for region in own)
            before = _after(before, task)
    return dag


def _task(blueprint: WorkflowInput, name: str, step: str, delivery: str, steps: list[PlanStep]) -> Task:
    """That runs a step; of several regions' steps it has the longest deadline."""
    within = max(deadline(blueprint.spec, blueprint.fleet, each, blueprint.steps) for each in steps)
    asked = {names.STEP: step, names.DELIVERY: delivery, names.DEADLINE: str(int(within.total_seconds()))}
    return Task(name=name, template=names.STAGE, arguments=asked)


def _after(before: Task | None, task: Task) -> Task:
    """`task`, which waits for the one before it; one that was skipped is no obstacle."""
    if before is not None:
        task.dependencies = [before.name]
    return task
