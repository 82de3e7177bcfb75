"""What the options of `tidegate rollout` mean: which cluster, which Rollout there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import SPEC, Spec
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pipelines.spec.delivery import Delivery

Context = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; default: the current one, or this pod's cluster."),
]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace; default: the context's.")]
RegionOfSpec = Annotated[
    str | None, typer.Option("--region", help="Region of the spec; may be left out when it has only one.")
]

ExpectHash = Annotated[
    str | None, typer.Option("--expect-hash", help="Refuse unless this is the pod template hash of the new version.")
]
ExpectStep = Annotated[
    int | None, typer.Option("--expect-step", min=0, help="Refuse unless the Rollout is at this step, counted from 0.")
]

Stuck = Annotated[
    Duration,
    typer.Option(
        "--stuck-after",
        parser=duration,
        help="Time without a reaction of the controller after which it counts as stuck.",
    ),
]


@dataclass(frozen=True)
class ClusterOptions:
    """Which namespace of which cluster; None where nothing is given."""

    context: Context = None
    namespace: Namespace = None
    spec: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", "--spec", help="Take cluster, namespace and name from this spec.", show_default=False
        ),
    ] = None
    region: Annotated[
        str | None, typer.Option("--region", help="Region of --spec; may be left out when it has only one.")
    ] = None

    def named(self, name: str | None) -> RolloutOptions:
        """The Rollout of that name there."""
        return RolloutOptions(**vars(self), name=name)


@dataclass(frozen=True)
class RolloutOptions(ClusterOptions):
    """And which Rollout."""

    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The Rollout; default: the delivery's, with --spec.", show_default=False),
    ] = None


@dataclass(frozen=True)
class RegionOptions:
    """Which regions of a spec; all of them where nothing is given."""

    region: Annotated[
        list[str] | None, typer.Option("--region", help="Region of the spec; repeatable; default: all.")
    ] = None
    context: Annotated[
        str | None, typer.Option("--context", help="Only the region that this context of the kubeconfig reaches.")
    ] = None
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Refuse unless this is the namespace of the spec.")
    ] = None

    def selected(self, spec: Delivery) -> tuple[str, ...]:
        """Their names; none for all.

        Raises:
            UsageError: the spec has no such region, is reached by other contexts, or names another namespace.
        """
        known, wanted = spec.regions.names, tuple(self.region or ())
        for region in wanted:
            if region not in known:
                raise UsageError(f"--region: found {region!r}; expected one of {', '.join(known)}")
        if self.context is None and self.namespace is None:
            return wanted
        # Not above: who selects nothing needs no spec of clusters.
        from tidegate.app.wiring.specs import on_clusters

        fleet = on_clusters(spec)
        if self.namespace not in {None, fleet.namespace}:
            raise UsageError(
                f"--namespace: found {self.namespace!r}; the spec says {fleet.namespace!r}",
                hint="leave it out, or give another --spec",
            )
        if self.context is None:
            return wanted
        contexts = {name: there.context or "the current one" for name, there in fleet.regions.items()}
        reached = tuple(each for each in wanted or known if contexts[each] == self.context)
        if not reached:
            raise UsageError(
                f"--context: found {self.context!r}; the spec says {_listed(contexts)}",
                hint="leave it out, or give another --spec",
            )
        return reached


def _listed(contexts: Mapping[str, str]) -> str:
    return ", ".join(f"{context} for {region}" for region, context in contexts.items())


@dataclass(frozen=True)
class ReleaseOptions:
    """Which engine, in which region of a delivery."""

    version: Annotated[
        str,
        typer.Option(
            "--version",
            help="Number of the model version; needed where objects of `--part serving` are asked for.",
            show_default=False,
        ),
    ] = ""
    image: Annotated[
        str,
        typer.Option(
            "--image",
            help="The engine's image: REPOSITORY@sha256:DIGEST. The spec's engine.image when left out.",
            show_default=False,
        ),
    ] = ""
    spec: Spec = SPEC
    region: RegionOfSpec = None
    digest: Annotated[
        str, typer.Option("--digest", help="Digest of the model version, for an annotation of its pods.")
    ] = ""


@dataclass(frozen=True)
class RolloutLocation:
    """One namespace of one cluster, and a Rollout there."""

    name: str
    """Empty when no certain one is meant."""
    context: str | None
    """None for the kubeconfig's current one, or the cluster that we run in."""
    namespace: str | None
    """None for the context's."""


def location_of(asked: RolloutOptions, *, named: bool = True) -> RolloutLocation:
    """What the options mean together; those that are given overrule the spec.

    Raises:
        UsageError: no name where one is needed, a region without its spec, or a spec without clusters.
        SpecError: when the spec is wrong.
    """
    if asked.spec is None:
        if asked.region:
            raise UsageError("--region needs the spec of a delivery", hint="give --spec delivery.yaml too")
        if named and not asked.name:
            raise UsageError("which Rollout?", hint="give its NAME, or --spec delivery.yaml")
        return RolloutLocation(asked.name or "", asked.context, asked.namespace)
    # Not above: who names a Rollout needs no spec.
    from tidegate.app.wiring.specs import on_clusters, region_of

    spec = _read_spec(asked.spec)
    fleet = on_clusters(spec)
    region = fleet.regions[region_of(fleet, asked.region)]
    return RolloutLocation(
        asked.name or spec.metadata.name, asked.context or region.context or None, asked.namespace or fleet.namespace
    )


def _read_spec(path: Path) -> Delivery:
    from pipelines.spec.delivery import Delivery
    from tidegate.core.spec import load_spec

    return load_spec(path, Delivery)
