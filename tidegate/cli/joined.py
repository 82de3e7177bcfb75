"""A delivery that another process opened, with all that this one needs in order to go on with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pipelines.context import Context
from pipelines.event_file import EventFile
from pipelines.journal import Journal, Listener
from pipelines.kept_files import SPEC, bring_evidence, bring_spec
from pipelines.model import Plan
from pipelines.ports import Event
from pipelines.prompts import golden_set
from pipelines.recorded import plan_of, spec_file_of
from pipelines.records.apart import Apart
from pipelines.records.writer import Limits, limits_of
from pipelines.resolved import refuse_other_files, refuse_other_plan
from pipelines.spec import Delivery, LocalFleet
from pipelines.state import StateFolder
from pipelines.story import tell
from pipelines.trials import Trials
from pipelines.trust import Trusted
from pipelines.vouched import vouched
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_ledger import MlflowLedger
from registry.digests import digest_files
from rollouts.adapters.host_client import attach
from rollouts.watchdog import lend
from tidegate.cli.carriers import carrier_of
from tidegate.cli.commands.report import Recorded, leave_report
from tidegate.cli.compose import open_registry, read_delivery
from tidegate.cli.console import PlainConsole
from tidegate.cli.delivery import Written, context_of, heartbeat, journal_of
from tidegate.cli.ground import Wanted, ground_of
from tidegate.cli.notify import outbox_for
from tidegate.cli.output import note
from tidegate.cli.progress import Progress, follow
from tidegate.cli.prover import identities_here
from tidegate.cli.trusted import trusted_beside, trusted_images
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, TidegateError, UsageError


@dataclass(frozen=True)
class Joined:
    """What the ledger and the files beside it say."""

    ledger: MlflowLedger
    plan: Plan
    spec: Delivery
    spec_path: Path
    spec_file: str
    state: StateFolder
    tracking_uri: str | None
    trusted: Trusted
    patience: timedelta
    """Until the next process must be heard of; zero when this one carries the delivery to its end."""

    @property
    def limits(self) -> Limits:
        """A process of many may lose its disk with its end: what it could not write it must wait for."""
        usual = limits_of(self.spec.patience)
        return replace(usual, end=usual.patience) if self.patience else usual

    @property
    def folder(self) -> Path:
        """What is the delivery's own on this machine."""
        return self.state.delivery(self.ledger.delivery)


def joined(
    deliveries: MlflowDeliveries,
    ledger: MlflowLedger,
    state: Path,
    tracking_uri: str | None,
    trusted: Trusted,
    *,
    patience: timedelta,
) -> Joined:
    """Read the plan, and bring the spec and the evidence here.

    Raises:
        UsageError: they were not kept.
        NotAsPlanned: they are not those with which the delivery was opened.
    """
    events, folder = ledger.recorded(), StateFolder(state)
    plan, spec_file = plan_of(events), spec_file_of(events)
    if spec_file is None:
        raise UsageError(f"the spec of delivery {ledger.delivery} was not kept", hint="deliver the version again")
    own = folder.delivery(ledger.delivery)
    path = bring_spec(deliveries, ledger.delivery, spec_file, own)
    refuse_other_files(plan.resolved, digest_files(own / SPEC), spec_file, ledger.delivery)
    spec = read_delivery(path, kept_below=own / SPEC)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=ledger.delivery)
    bring_evidence(deliveries, ledger.delivery, own, vouched(events))
    return Joined(ledger, plan, spec, path, spec_file, folder, tracking_uri, trusted, patience)


def shown(events: list[Event]) -> Progress:
    """A display that knows what happened before."""
    progress = follow(PlainConsole(stderr=True), SystemClock())
    progress.story = tell(events)
    return progress


@asynccontextmanager
async def context_for(here: Joined, listeners: list[Listener], *, hands_on: bool = False) -> AsyncIterator[Context]:
    """The delivery's surroundings; its heart beats inside, and a canary on this machine may stay.

    Whoever `hands_on` leaves it to the next process of the delivery.
    """
    wanted = Wanted(
        spec=here.spec,
        folder=here.spec_path.parent,
        state=here.state,
        registry=open_registry(here.state.root, here.tracking_uri),
        users=False,
        keep=False,
        identities=identities_here(here.trusted),
        images=here.plan.resolved.images if here.plan.resolved else {},
        # Not beside the spec: what lies there was brought from MLflow.
        trusted=trusted_images(trusted_beside(Path())),
        carrier=carrier_of(here.ledger, here.spec, patience=here.patience, hands_on=hands_on),
    )
    with (
        outbox_for(here.spec.notify, here.plan, here.ledger.delivery) as outbox,
        Apart(listeners) as displays,
        journal_of(wanted, here.ledger, [displays, outbox], here.limits) as journal,
    ):
        written = Written(journal, Trials(here.folder, journal), here.spec_file)
        async with heartbeat(_sign_of_life(here, journal)), ground_of(wanted) as ground:
            yield context_of(wanted, here.plan, written, ground)


def _sign_of_life(here: Joined, journal: Journal) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        # First: the fleet on this machine must hear of it also while MLflow is away.
        if here.patience and isinstance(here.spec.fleet, LocalFleet):
            lend(here.state.root, SystemClock().now() + here.patience)
        await journal.beat()

    return say


async def require_fleet(here: Joined) -> None:
    """A fleet on this machine must be up already: one that a step starts would end with the step.

    Raises:
        Refused: none is.
    """
    if isinstance(here.spec.fleet, LocalFleet) and await attach(here.state.root) is None:
        raise Refused("no fleet runs here", hint="start it with `tidegate fleet up --detach`")


def attach_report(here: Joined) -> None:
    """Write the report and keep it with the delivery."""
    target = here.folder / "report.html"
    local = EventFile(here.folder / "events.jsonl")
    # The file has more looks at each gate, where one process has written it from the beginning.
    try:
        source = local if local.path.exists() else Recorded(here.ledger.recorded())
    except TidegateError as error:
        note(f"there is no report: {error}")
        return
    leave_report(here.spec, here.state, (here.ledger.delivery, source), target, here.ledger.attach)
