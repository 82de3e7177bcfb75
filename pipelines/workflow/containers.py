"""The templates that run something: each is a container with one command of tidegate's."""

from __future__ import annotations

from hera.workflows import Container, Parameter, RetryStrategy
from hera.workflows.models import (
    Affinity,
    Backoff,
    Cache,
    LocalObjectReference,
    Memoize,
    Toleration,
    UserContainer,
    ValueFrom,
    VolumeMount,
)
from hera.workflows.models.io.k8s.apimachinery.pkg.util.intstr import IntOrString

from pipelines.workflow import conventions as names
from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.deadlines import SLACK, closing, silence
from pipelines.workflow.pods import (
    LOGIN,
    SIGN,
    SecretKind,
    environment,
    mounts,
    resources,
    secrets,
    security,
    volumes_of_build,
)
from pipelines.workflow.spec import BuildSpec
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.release import Release
from tidegate.core.quantities import format_duration

WORTH_IT = "asInt(lastRetry.exitCode) in [4, 137, 143]"
"""Something outside was not there, or the process was killed. 1 and 3 are verdicts, and 2 would be wrong again."""
LOST = 'lastRetry.status == "Error"'
"""The pod went away with its node; or a container before the main one failed."""


def again(blueprint: Blueprint, expression: str = f"{LOST} || {WORTH_IT}") -> RetryStrategy:
    """Pauses of 30 s, 1 min, 2 min and so on. `maxDuration` would count from the first try, and steps take long."""
    backoff = Backoff(duration="30s", factor=IntOrString(2))
    limit = blueprint.settings.retries
    return RetryStrategy(limit=limit, retry_policy="Always", expression=expression, backoff=backoff)


def opening(blueprint: Blueprint) -> Container:
    """Prints the delivery's id. Said again by the same workflow it finds the delivery that it has opened."""
    command = [
        "stage",
        "open",
        f"--file={names.SPEC_FOLDER}/{blueprint.spec_file}",
        f"--version={names.argument(names.VERSION)}",
        f"--delivery={names.argument(names.DELIVERY)}",
        f"--key={names.UID}",
        f"--patience={format_duration(blueprint.settings.patience)}",
    ]
    within = SLACK + silence(blueprint.spec)
    return _command(blueprint, names.OPEN, command, within=int(within.total_seconds()), spec=True)


def staging(blueprint: Blueprint) -> Container:
    """Any step."""
    inputs = [Parameter(name=name) for name in (names.STEP, names.DELIVERY, names.DEADLINE)]
    command = ["stage", names.own_value(names.STEP), f"--delivery={names.own_value(names.DELIVERY)}"]
    return _command(blueprint, names.STAGE, command, within=names.own_value(names.DEADLINE), inputs=inputs)


def closure(blueprint: Blueprint) -> Container:
    """The exit handler: by the key, since a workflow that was stopped may not have come to know the id."""
    command = ["stage", "close", f"--file={names.SPEC_FOLDER}/{blueprint.spec_file}", f"--key={names.UID}"]
    within = closing(blueprint.spec, blueprint.fleet)
    return _command(blueprint, names.CLOSE, command, within=int(within.total_seconds()), spec=True)


def building(blueprint: Blueprint, build: BuildSpec) -> Container:
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
            f"--spec={names.SPEC_FOLDER}/{blueprint.spec_file}",
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
        # A build that failed as such, which Argo Workflows tells as LOST, would fail again, on the same GPU.
        retry_strategy=again(blueprint, WORTH_IT),
        # Argo Workflows remembers only what has an output; the layout's index names the image by its digest.
        outputs=[Parameter(name="image", value_from=ValueFrom(path=f"{layout}/index.json"))],
        memoize=Memoize(
            key=f"{version}-{blueprint.engine_key}",
            max_age=f"{build.remember.total_seconds() / 3600:.0f}h",
            cache=Cache(config_map=LocalObjectReference(name=names.memory(blueprint.name))),
        ),
    )


def _command(
    blueprint: Blueprint,
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
        retry_strategy=again(blueprint),
    )


def _secrets_of(build: BuildSpec) -> list[VolumeMount]:
    folders = {LOGIN: (build.credentials, names.LOGIN_FOLDER), SIGN: (build.sign_key, names.SIGN_FOLDER)}
    return [VolumeMount(name=name, mount_path=at, read_only=True) for name, (secret, at) in folders.items() if secret]


def _signing(build: BuildSpec) -> list[str]:
    return [f"--sign-key={names.SIGN_FOLDER}/{names.SIGN_KEY}"] if build.sign_key else []


def _site(blueprint: Blueprint) -> Site:
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
