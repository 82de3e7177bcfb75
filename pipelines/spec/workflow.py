"""`workflow` of a delivery's spec: where its steps run when Argo Workflows carries it, and with what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from rollouts.manifests.pod_spec import Block, Bytes, Cores, LabelKey, LabelText, ObjectName, PinnedImage, pinned
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.access import Url
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration


def account_of(delivery: str) -> str:
    """The service account of the workflow's pods."""
    return f"{delivery}-workflow"


SERVER = (
    "an MLflow server as pods reach it, such as http://mlflow.mlflow:5000, "
    "started with `--artifacts-destination` so that it hands out files itself"
)
"""What would be right."""
FILES = frozenset({"", "file", "sqlite"})
"""Schemes of what lies on the disk of one machine; a path has none."""


def out_of_reach(address: str) -> str | None:
    """Why no pod can reach it; None when it may."""
    parts = urlsplit(address)
    if parts.scheme in FILES:
        return "a file of one machine"
    host = parts.hostname or ""
    own = host == "localhost" or host.endswith(".localhost")
    with suppress(ValueError):
        # What a server listens on when it listens everywhere is no address to ask.
        own = ip_address(host).is_loopback or ip_address(host).is_unspecified
    return "in a pod that is the pod itself" if own else None


def _pinned_or_inside(base: str) -> str:
    """A folder of an image that is pinned is as fixed as the image."""
    return base if base.startswith("/") else pinned(base)


class BuildSpec(SpecModel):
    """An engine image that the workflow builds and pushes itself, before the delivery begins."""

    image: PinnedImage
    """What it is built in, by digest: tidegate and the pinned vLLM."""
    base: Annotated[str, AfterValidator(_pinned_or_inside)]
    """What the engine image continues, as `engine build --base` takes it: by digest, or a layout inside `image`."""
    repository: str = Field(pattern=r"^[^\s:@]+(:\d+)?(/[^\s:@]+)+$")
    """REGISTRY/REPOSITORY to which it is pushed, tagged with the version's number."""
    credentials: ObjectName | None = None
    """A Secret of type `kubernetes.io/dockerconfigjson`, of an account that may push there."""
    sign_key: ObjectName | None = None
    """A Secret with the key `engine.key`: the private key (ECDSA P-256, PEM) that signs manifest and image."""
    cpu: Cores = "8"
    memory: Bytes = "64Gi"
    scratch: Bytes = "200Gi"
    """Disk for weights, what was compiled, and the image."""
    within: Duration = timedelta(hours=4)
    """After so long a build is ended."""
    remember: Duration = timedelta(days=30)
    """How long a version that was built with the same settings is not built again."""


class SecretsSpec(SpecModel):
    """Secrets by what they are for: a container gets those that it has a use for."""

    registry: tuple[ObjectName, ...] = ()
    """Credentials of MLflow: for every step, and for a build, which loads a model that nobody has judged."""
    judge: tuple[ObjectName, ...] = ()
    """Keys of judge models: for the steps between `open` and `close`."""
    notify: tuple[ObjectName, ...] = ()
    """Addresses to notify: for every step, and for no build."""


def _of_registry(said: object) -> object:
    return {"registry": said} if isinstance(said, list | tuple) else said


Secrets = Annotated[
    SecretsSpec, BeforeValidator(_of_registry, json_schema_input_type=SecretsSpec | tuple[ObjectName, ...])
]


class WorkflowSpec(SpecModel):
    """The cluster that runs the steps; the regions may be others."""

    image: PinnedImage
    """The toolchain: what every step runs in. By digest, or else a delivery could change its code half-way."""
    tracking_uri: Url
    """MLflow, as pods reach it."""
    namespace: ObjectName | None = None
    """The fleet's when it is left out."""
    secrets: Secrets = SecretsSpec()
    """Secrets whose keys become environment variables, by what they are for. A list is of `registry`."""
    kubeconfig: ObjectName | None = None
    """A Secret with the key `config`: the contexts that `fleet.regions` name."""
    trust: ObjectName | None = None
    """A ConfigMap with the key `trust.yaml`, and the files that this names: whom steps believe."""
    ledger_key: ObjectName | None = None
    """A Secret with the key `ledger.key`: the private key (ECDSA P-256, PEM) that signs what steps write."""
    cpu: Cores = "500m"
    memory: Bytes = "2Gi"
    scratch: Bytes = "50Gi"
    """Disk of a step: the first ones bring the model version's files."""
    selector: Mapping[LabelKey, LabelText] = {}
    """Labels of the nodes on which steps run; a build chooses its nodes by the engine's accelerator."""
    pull_secrets: tuple[ObjectName, ...] = ()
    retries: int = Field(default=3, ge=0, le=20)
    """How often a step is repeated that was killed, or that found something outside not there."""
    egress_to: tuple[Block, ...] = ()
    """Blocks of addresses that steps may reach besides pods of their cluster: MLflow, the regions' API servers,
    registries. All but those where clouds hand out a node's credentials when it is empty."""
    patience: Duration = Field(default=timedelta(minutes=30), gt=timedelta(0))
    """How long the next step may take to start; after that another delivery of the model may begin."""
    keep: Duration = timedelta(days=7)
    """How long workflows that have ended are kept; the ledger is kept for good."""
    build: BuildSpec | None = None
    """Nobody builds here when it is left out: the version's engine image was pushed before."""

    @field_validator("tracking_uri", mode="before")
    @classmethod
    def _for_pods(cls, uri: object) -> object:
        reason = out_of_reach(uri) if isinstance(uri, str) else None
        if reason:
            raise at_odds(f"{uri}: {reason}", SERVER)
        return uri


def workflow_conflicts(workflow: WorkflowSpec, fleet: ClusterFleetSpec | None) -> Iterator[SpecConflict]:
    """Steps whose regions no pod can reach; `fleet` is None when it is on this machine."""
    if fleet is None:
        yield SpecConflict((), "with a fleet on this machine, which no pod can reach", "`fleet: {kind: argo, ...}`")
    elif workflow.kubeconfig is None and (named := [name for name, region in fleet.regions.items() if region.context]):
        found = f"none, but fleet.regions.{named[0]} names a context"
        yield SpecConflict(("kubeconfig",), found, "the name of a Secret that holds a kubeconfig")
    for region, there in fleet.regions.items() if fleet else ():
        for where, source in there.prometheus.sources():
            if source.file and not source.secret:
                found = f"{'.'.join(where)} of fleet.regions.{region}.prometheus in a file alone, which no pod has"
                yield SpecConflict((), found, "`secret` next to `file`: the Secret that steps are given")
