"""Reads the delivery spec of a command, with the trust file next to it and every file that the spec names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.adapters.trust import named_trust
from pipelines.events.artifacts import SPEC, bring_spec
from pipelines.events.state import plan_of, spec_file_of
from pipelines.plan.planner import refuse_other_files
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import (
    files_elsewhere,
    golden_set,
    missing_files,
    not_for_a_spec,
    root_of,
    user_prompts,
)
from pipelines.spec.sections import LocalFleet
from registry.deliveries import MlflowDeliveries
from registry.files import digest_files
from registry.model import Event
from registry.ports import limit_calls
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.manifests.theirs_spec import TheirsFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import SpecConflict
from tidegate.core.spec import load_spec

ROOT_VARIABLE = "TIDEGATE_ROOT"
"""The folder below which files of specs may lie, where that is not the repository."""


def read_delivery(path: Path, *, kept_below: Path | None = None) -> Delivery:
    """As `read_spec`, and with it every file that it names: what is wrong is said before anything starts."""
    spec = read_spec(path, kept_below=kept_below, files_needed=True)
    limit_calls(spec.patience.call.total_seconds())
    golden_set(spec, path.parent)
    user_prompts(spec, path.parent)
    return spec


def read_spec(path: Path, *, kept_below: Path | None = None, files_needed: bool = False) -> Delivery:
    """The spec, when everything in it is its author's to say: its files, variables, addresses and plugins.

    `kept_below` is the folder to which a delivery's own copy was brought, if it is one.

    Raises:
        SpecError: with every problem, each with its line.
        UsageError: a trust file that nobody named lies next to it.
    """
    allowed = os.environ.get(ROOT_VARIABLE)
    trusted = named_trust(None if kept_below else path.parent)
    root = kept_below or (Path(allowed) if allowed else root_of(path))

    def odds(spec: Delivery) -> Iterator[SpecConflict]:
        yield from not_for_a_spec(spec, trusted.trust.spec)
        wrong_files = list(files_elsewhere(spec, path.parent, root))
        if files_needed:
            wrong_files += missing_files(spec, path.parent)
        yield from wrong_files
        if not wrong_files and isinstance(spec.fleet, ArgoFleetSpec) and spec.fleet.patches:
            # Few specs have any, and rendering takes time to load.
            from pipelines.plan.customization import customization_conflicts

            yield from customization_conflicts(spec, trusted.trust)

    return load_spec(path, Delivery, also=odds).read_from(path)


def on_this_machine(spec: Delivery) -> LocalFleet:
    """The fleet of processes that a spec describes.

    Raises:
        UsageError: its fleet is clusters; nothing of it runs here.
    """
    if not isinstance(spec.fleet, LocalFleet):
        raise UsageError(
            "the fleet of this delivery is on clusters, not on this machine",
            hint="`tidegate deliver` and `tidegate status` speak to them; this command is for `fleet: {kind: local}`",
        )
    return spec.fleet


def on_clusters(spec: Delivery) -> ArgoFleetSpec:
    """The fleet of clusters that a spec describes.

    Raises:
        UsageError: its fleet is another one.
    """
    if isinstance(spec.fleet, TheirsFleetSpec):
        raise UsageError("the objects of this delivery are named by reference: they are not tidegate's")
    if not isinstance(spec.fleet, ArgoFleetSpec):
        raise UsageError("the fleet of this delivery is no cluster", hint="set `fleet.kind: argo`")
    return spec.fleet


def region_of(fleet: ClusterFleetSpec, wanted: str | None) -> str:
    """A region of the fleet; its only one needs not be said.

    Raises:
        UsageError: when there is no such region, or none is said of several.
    """
    known = list(fleet.regions)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted not in known:
        found = "no region" if wanted is None else f"region {wanted!r}"
        raise UsageError(f"--region: found {found}; expected one of {', '.join(known)}")
    return wanted


def kept_spec(deliveries: MlflowDeliveries, delivery: str, events: Sequence[Event]) -> Delivery:
    """Bring and read it; what it names is brought and compared, and not read.

    Raises:
        UsageError, NotAsPlanned: as `bring_kept`.
    """
    with TemporaryDirectory(prefix="tidegate-") as folder:
        return load_spec(bring_kept(deliveries, delivery, events, Path(folder))[1], Delivery)


def bring_kept(deliveries: MlflowDeliveries, delivery: str, events: Sequence[Event], into: Path) -> tuple[str, Path]:
    """Bring the spec that a delivery kept, with what it names; where it lies among the kept files, and here.

    Raises:
        UsageError: it was not kept.
        NotAsPlanned: it is not that with which the delivery was opened.
    """
    spec_file, resolved = spec_file_of(events), plan_of(events).resolved
    if spec_file is None:
        raise UsageError(f"the spec of delivery {delivery} was not kept", hint="deliver the version again")
    path = bring_spec(deliveries, delivery, spec_file, into, resolved.files)
    refuse_other_files(resolved, digest_files(into / SPEC), spec_file, delivery)
    return spec_file, path
