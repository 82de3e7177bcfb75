"""`tidegate stage open`: the beginning of a delivery that is carried step by step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from pipelines.identity.ports import Identities, Prover
from pipelines.journal import Journal
from pipelines.kept_files import keep_spec, refuse_unkeepable
from pipelines.model import Ending, Plan
from pipelines.recorded import plan_of
from pipelines.resumption import say_what_is_lost
from pipelines.rights import refuse_unanswerable, request_of
from pipelines.spec import Delivery, LocalFleet
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_ledger import MlflowLedger
from rollouts.watchdog import lend
from tidegate.cli.compose import make_plan_of, open_deliveries, open_registry, read_delivery, settled
from tidegate.cli.heir import Heir, entitled
from tidegate.cli.joined import Joined, context_for, joined, require_fleet
from tidegate.cli.notify import outbox_for
from tidegate.cli.output import print_json
from tidegate.cli.prover import identities_here
from tidegate.cli.trusted import trusted_beside, trusted_images
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.quantities import parse_duration


@dataclass(frozen=True)
class Opening:
    """What the person or the workflow asked for."""

    spec: Path
    version: str | None
    key: str | None
    delivery: str | None
    patience: str
    heir: Heir
    """Who opens it, or carries on the one that is named."""


def run(opening: Opening, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Open the delivery, or carry on the one that is named; print its id."""
    patience = _patience(opening.patience)
    deliveries = open_deliveries(state, tracking_uri, None if opening.delivery else opening.spec.parent)
    if opening.delivery:
        ledger = _carried_on(deliveries, opening, patience, state, tracking_uri)
    else:
        ledger = _opened(deliveries, opening, patience, state, tracking_uri)
    plan = plan_of(ledger.recorded())
    if as_json:
        steps = [step.model_dump(mode="json", exclude={"gates"}) | {"id": step.id} for step in plan.steps]
        print_json({"delivery": ledger.delivery, "version": plan.version.version, "steps": steps})
    else:
        print(ledger.delivery)
    return 0


def _opened(
    deliveries: MlflowDeliveries, opening: Opening, patience: timedelta, state: Path, tracking_uri: str | None
) -> MlflowLedger:
    spec = read_delivery(opening.spec)
    refuse_unkeepable(spec)
    asker, trusted = opening.heir.means.prover, opening.heir.trusted
    refuse_unanswerable(spec, trusted.trust.approvers, requester_known=asker is not None)
    registry = open_registry(state, tracking_uri)
    plan = make_plan_of(spec, opening.spec.parent, registry, version=opening.version)
    plan = settled(plan, spec, opening.spec, registry, trusted_images(trusted_beside(opening.spec.parent)))
    digest = sha256(opening.spec.read_bytes()).hexdigest()
    ledger = deliveries.open_delivery(
        plan.version, plan.champion, spec_digest=digest, patience=patience, key=opening.key
    )
    # With a key it may have been opened before, by a process that was killed when it had done this or had not.
    if not ledger.recorded():
        asyncio.run(_begin(ledger, spec, plan, _spec_kept(ledger, opening.spec, spec)))
    if asker is not None:
        _say_who_asks(ledger, asker, identities_here(trusted))
    if isinstance(spec.fleet, LocalFleet):
        lend(state, SystemClock().now() + patience)
    return ledger


def _say_who_asks(ledger: MlflowLedger, asker: Prover, identities: Identities) -> None:
    events = ledger.recorded()
    if any(event.kind == "requested" for event in events):
        return
    try:
        ledger.append(request_of(ledger.delivery, events, asker, identities, SystemClock().now()))
    except TidegateError as error:
        ledger.close(str(Ending.FAILED), str(error))
        raise


def _spec_kept(ledger: MlflowLedger, spec_path: Path, spec: Delivery) -> str | TidegateError:
    """Where the spec lies among the kept files, or why it does not."""
    try:
        return keep_spec(ledger, spec_path, spec)
    except TidegateError as error:
        return error


async def _begin(ledger: MlflowLedger, spec: Delivery, plan: Plan, kept: str | TidegateError) -> None:
    with outbox_for(spec.notify, plan, ledger.delivery) as outbox:
        journal = Journal(ledger, SystemClock(), [outbox])
        try:
            if isinstance(kept, TidegateError):
                raise kept
            await journal.opened(plan, spec_file=kept)
        except TidegateError as error:
            # No step could ever find its way; the next delivery must not have to wait for this one.
            await journal.closed(Ending.FAILED, str(error), error.exit_code)
            raise


def _carried_on(
    deliveries: MlflowDeliveries, opening: Opening, patience: timedelta, state: Path, tracking_uri: str | None
) -> MlflowLedger:
    assert opening.delivery is not None, "only a delivery that is named can be carried on"
    if opening.key and deliveries.summary(opening.delivery).key == opening.key:
        return deliveries.join(opening.delivery)
    resumed = entitled(opening.heir, deliveries, opening.delivery)
    ledger = deliveries.take_over(opening.delivery, patience=patience, key=opening.key)
    if resumed is not None:
        ledger.append(resumed)
    asyncio.run(_look(joined(deliveries, ledger, state, tracking_uri, opening.heir.trusted, patience=patience)))
    return ledger


async def _look(here: Joined) -> None:
    """What the regions no longer show is not done, whatever the ledger said before."""
    await require_fleet(here)
    async with context_for(here, [], hands_on=True) as context:
        await context.journal.say("delivery", "evidence", "carried on step by step")
        await say_what_is_lost(context)


def _patience(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--patience {text}: expected {error}") from None
