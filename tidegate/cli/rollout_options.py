"""What options mean that say which regions, and which engine there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import SPEC, Spec
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pipelines.spec.delivery import Delivery

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace; default: the context's.")]
RegionOfSpec = Annotated[
    str | None, typer.Option("--region", help="Region of the spec; may be left out when it has only one.")
]


Regions = Annotated[
    list[str] | None, typer.Option("--region", metavar="NAME", help="Region of the spec; repeatable; default: all.")
]


def selected_regions(spec: Delivery, named: Sequence[str], context: str | None) -> tuple[str, ...]:
    """Those that are named, of them those that the context of the kubeconfig reaches; none for all.

    Raises:
        UsageError: the spec has no such region, or none that this context reaches.
    """
    known, wanted = spec.regions.names, tuple(named)
    for region in wanted:
        if region not in known:
            raise UsageError(f"--region: found {region!r}; expected one of {', '.join(known)}")
    if context is None:
        return wanted
    # Not above: who selects nothing needs no spec of clusters.
    from pipelines.adapters.specs import on_clusters

    contexts = {name: there.context or "the current one" for name, there in on_clusters(spec).regions.items()}
    reached = tuple(each for each in wanted or known if contexts[each] == context)
    if not reached:
        listed = ", ".join(f"{each} for {region}" for region, each in contexts.items())
        raise UsageError(
            f"--context: found {context!r}; the spec says {listed}", hint="leave it out, or give another spec"
        )
    return reached


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
