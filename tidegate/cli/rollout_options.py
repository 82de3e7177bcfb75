"""What options mean that say which regions, and which engine there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

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
