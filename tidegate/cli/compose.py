"""The composition root: which adapters stand behind the ports on this machine."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.adapters.ledger_keys import believed_by, seal_from
from pipelines.image_engines import pinned_image
from pipelines.kept_files import digests_of, laid_out
from pipelines.model import Plan, Resolved
from pipelines.plan import make_plan
from pipelines.policy.files import files_elsewhere, root_of
from pipelines.policy.rules import not_for_a_spec
from pipelines.prompts import golden_set, user_prompts
from pipelines.records.leftovers import write_leftovers
from pipelines.requester import who_asks
from pipelines.resolved import settings_digest
from pipelines.spec import Delivery, LocalFleet
from pipelines.state import StateFolder
from pipelines.trust import trust_at
from pipelines.trusted_images import TrustedImages
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.cli.options import TRUST_VARIABLE
from tidegate.cli.output import note
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.model import Contradiction
from tidegate.core.spec import load_spec

if TYPE_CHECKING:
    from pipelines.engines import LocalEngines
    from registry.adapters.mlflow_deliveries import MlflowDeliveries
    from registry.adapters.mlflow_models import MlflowRegistry


LEDGER_KEY = "TIDEGATE_LEDGER_KEY"
"""The path of the private key that signs what this process writes into ledgers."""
ROOT_VARIABLE = "TIDEGATE_ROOT"
"""The folder below which files of specs may lie, where that is not the repository."""


def read_spec(path: Path, *, kept_below: Path | None = None) -> Delivery:
    """The spec, when everything in it is its author's to say: its files, variables, addresses and plugins.

    Args:
        path: of the spec.
        kept_below: the folder to which a delivery's own copy was brought. A trust file that came with it is none:
            then the one in the working folder is read, where TIDEGATE_TRUST names none.

    Raises:
        SpecError: with every problem, each with its line.
    """
    named, allowed = os.environ.get(TRUST_VARIABLE), os.environ.get(ROOT_VARIABLE)
    trusted = trust_at(Path(named) if named else None, Path() if kept_below else path.parent)
    root = kept_below or (Path(allowed) if allowed else root_of(path))

    def odds(spec: Delivery) -> Iterator[Contradiction]:
        yield from not_for_a_spec(spec, trusted.trust.spec)
        yield from files_elsewhere(spec, path.parent, root)

    return load_spec(path, Delivery, also=odds)


def read_delivery(path: Path, *, kept_below: Path | None = None) -> Delivery:
    """As `read_spec`, and with it every file that it names: what is wrong is said before anything starts."""
    spec = read_spec(path, kept_below=kept_below)
    golden_set(spec, path.parent)
    user_prompts(spec, path.parent)
    if isinstance(spec.fleet, ArgoFleetSpec) and spec.fleet.patience:
        note(f"{path}: fleet.patience is now patience.api; the old name goes with the next release")
    return spec


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


def registry_uri(state: Path, tracking_uri: str | None) -> str:
    """Where MLflow is: as named, else the embedded store in `state`."""
    from registry.adapters.mlflow_store import embedded_uri

    return tracking_uri or embedded_uri(state)


def open_registry(state: Path, tracking_uri: str | None) -> MlflowRegistry:
    """The registry that commands share."""
    from registry.adapters.mlflow_models import MlflowRegistry

    return MlflowRegistry(registry_uri(state, tracking_uri))


def open_deliveries(state: Path, tracking_uri: str | None, spec_folder: Path | None = None) -> MlflowDeliveries:
    """The ledgers of all deliveries, signed and believed as the environment says.

    What a process before this one could not write is written first.

    Args:
        state: the folder with what is this machine's own.
        tracking_uri: of MLflow.
        spec_folder: where a person's own spec lies, with a trust file beside it if there is one; never where one
            lies that came from MLflow: without it the one in the working folder is read, if there is one.
    """
    from registry.adapters.mlflow_deliveries import MlflowDeliveries

    named, seal = os.environ.get(TRUST_VARIABLE), seal_from(os.environ.get(LEDGER_KEY))
    believed = believed_by(trust_at(Path(named) if named else None, spec_folder or Path()))
    deliveries = MlflowDeliveries(registry_uri(state, tracking_uri), seal=seal, believed=believed)
    if (unwritten := StateFolder(state).unwritten).exists():
        write_leftovers(unwritten, deliveries, open_registry(state, tracking_uri), note)
    return deliveries


def make_plan_of(spec: Delivery, folder: Path, registry: MlflowRegistry, *, version: str | None = None) -> Plan:
    """The plan for what the aliases point at now, or for the version with that number."""
    champion = registry.resolve(spec.model.name, spec.model.target)
    wanted = registry.resolve(spec.model.name, version or spec.model.origin)
    return make_plan(spec, wanted, champion, prompts=len(golden_set(spec, folder)))


def settled(
    plan: Plan, spec: Delivery, spec_path: Path, registry: MlflowRegistry, trusted: TrustedImages | None
) -> Plan:
    """The plan with all that is settled when a delivery is opened, and never looked up again.

    Raises:
        NoImage: a version that clusters shall serve has no image by digest.
        UntrustedImage: an image is not what the trust file asks for, or an engine of another version.
    """
    resolved = Resolved(
        spec=sha256(spec_path.read_bytes()).hexdigest(),
        gates=settings_digest(spec),
        files=_kept(spec_path, spec),
        images=images_of(plan, spec, registry, trusted),
        requested_by=who_asks(os.environ, user=_user(), host=socket.gethostname()),
    )
    return plan.model_copy(update={"resolved": resolved})


def images_of(plan: Plan, spec: Delivery, registry: MlflowRegistry, trusted: TrustedImages | None) -> dict[str, str]:
    """The engine images that clusters are to serve, by the version's number, each proven; none for this machine.

    Raises:
        NoImage: as `settled`.
        UntrustedImage: as `settled`.
    """
    versions = (plan.version, plan.champion) if isinstance(spec.fleet, ArgoFleetSpec) else ()
    images = {version.version: pinned_image(version, registry.tags(version)) for version in versions}
    if trusted:
        for version in versions:
            trusted.prove(version, images[version.version])
    return images


def _kept(spec_path: Path, spec: Delivery) -> dict[str, str]:
    """The digests of what is kept; none of a spec that cannot be, which is said where it is to be kept."""
    try:
        return digests_of(laid_out(spec_path, spec)[1])
    except UsageError:
        return {}


def _user() -> str:
    try:
        return getpass.getuser()
    # In a container that gives the process a number and no name.
    except (OSError, KeyError):
        return str(os.getuid())


def local_engines(spec: Delivery, state: StateFolder, registry: MlflowRegistry) -> LocalEngines:
    """Engines of the pinned environment on this machine.

    Raises:
        OutsideError: when the environment is not there; the hint says how to make it.
    """
    from engine_images.adapters.environment import find_engine_environment
    from engine_images.adapters.scorer import CompletionScorer
    from engine_images.adapters.shelf import Shelf
    from engine_images.build.builder import Builder
    from pipelines.build_servers import BuildServers
    from pipelines.engines import LocalEngines

    # Stable and canary always share the cores; a thread more than there are cores costs more than it brings.
    threads = max(1, (os.cpu_count() or 1) // 2)
    name = spec.metadata.name
    return LocalEngines(
        registry=registry,
        settings=spec.engine,
        environment=find_engine_environment(),
        state=state,
        builder=Builder(Shelf(state.builds), BuildServers(SystemClock(), name=name), CompletionScorer()),
        name=name,
        threads=threads,
    )
