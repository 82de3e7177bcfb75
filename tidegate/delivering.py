"""A delivery from its plan to its report, and one that is carried to its end after its process died."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.authority.answering import Speaker
from pipelines.delivery_lock import delivery_lock
from pipelines.events.artifacts import keep_spec
from pipelines.events.journal import Journal
from pipelines.events.state import state_of
from pipelines.model import Ending, Plan, Result
from pipelines.run.engine import deliver as run_plan
from pipelines.run.resume import resume as resume_plan
from pipelines.spec.delivery import Delivery
from pipelines.statements import Prover
from rollouts.local.locks import end_lease
from tidegate.carrying import Carrying, attach, carrier_of, carry, open_ledger, take_over, uncancelled
from tidegate.connect import Carried, preconditions_here, preconditions_of, refuse
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.process import note
from tidegate.core.threads import call_in_thread
from tidegate.planning import plan_for, refuse_outdated, settle
from tidegate.reports import report_path
from tidegate.surroundings import Surroundings


@dataclass(frozen=True)
class DeliveryOutcome:
    """How a delivery ended, and where its report is."""

    result: Result
    report: Path


async def deliver(
    at: Surroundings,
    spec: Delivery,
    how: Carrying,
    *,
    plan: Plan | None = None,
    version: str | None = None,
    asker: Prover | None = None,
) -> DeliveryOutcome:
    """Deliver a version to every region, or take it back; whoever interrupts it has it taken back too.

    Args:
        at: where it is carried.
        spec: the delivery's.
        how: it is carried, and who follows it.
        plan: that was made before; None for one of what the aliases point at now.
        version: without a plan: the version's number; None for the one that the alias points at.
        asker: proves who asks for it.

    Raises:
        TidegateError: nothing was begun: every reason of its preconditions, or MLflow is away.
        PlanOutdated: what the plan rests on has changed since.
        DeliveryRuns: another one is under way.
    """
    # What this machine lacks is said at once; the rest takes a plan, which takes MLflow.
    await call_in_thread(lambda: refuse(preconditions_here(at, spec, users=how.play.users, asker=asker)))
    preview = plan
    if preview is None:
        folder = spec.path.parent
        preview = await call_in_thread(plan_for, spec, folder, at.registry, version=version, preview=True)
    await call_in_thread(lambda: refuse(preconditions_of(at, spec, preview)))
    with delivery_lock(at.state.lock):
        settled = await call_in_thread(_settled, at, spec, plan, version)
        carried = await uncancelled(call_in_thread(_opened, at, spec, settled, asker))
        result = await carry(carried, how, run_plan, _closed_unbegun)
    return DeliveryOutcome(result, report_path(at.state, result.delivery))


def _settled(at: Surroundings, spec: Delivery, plan: Plan | None, version: str | None) -> Plan:
    """The plan, with all that is settled when the delivery is opened."""
    if plan is None:
        return settle(at, spec, version=version)
    refuse_outdated(plan, spec, spec.path, at.registry)
    return plan


def _opened(at: Surroundings, spec: Delivery, plan: Plan, asker: Prover | None) -> Carried:
    ledger = open_ledger(at.deliveries(), spec, plan)
    spec_file: str | None = None
    try:
        spec_file = keep_spec(ledger, spec.path, spec)
    except TidegateError as error:
        note(f"the spec is not kept, so that `tidegate resume` will not be possible: {error}")
    return Carried(at, ledger, plan, spec, spec_file, carrier_of(ledger, spec), asker)


async def _closed_unbegun(journal: Journal, error: BaseException) -> Result:
    if isinstance(error, TidegateError):
        return await journal.closed(Ending.FAILED, str(error), error.exit_code)
    return await journal.closed(Ending.INTERRUPTED, "asked to stop before it began", ExitCode.INTERRUPTED)


async def resume(
    at: Surroundings, delivery: str, how: Carrying, *, by: str | None = None, prover: Prover | None = None
) -> DeliveryOutcome:
    """Carry a delivery whose process died to its end, here; finished steps are skipped.

    Args:
        at: where it is carried.
        delivery: its id, or the first characters of it.
        how: it is carried, and who follows it.
        by: who carries it on, where the spec says that a name is enough.
        prover: proves who does.

    Raises:
        TidegateError: it is over or is carried by a process, its spec was not kept, or the caller is not entitled.
    """
    speaker = Speaker(by, prover)
    with delivery_lock(at.state.lock):
        carried = await uncancelled(call_in_thread(_taken_over, at, delivery, speaker))
        how.display.story = state_of(await uncancelled(call_in_thread(carried.ledger.recorded)))
        result = await carry(carried, how, resume_plan)
    return DeliveryOutcome(result, report_path(at.state, carried.ledger.delivery))


def _taken_over(at: Surroundings, delivery: str, speaker: Speaker) -> Carried:
    """Carried by this process from here on, which holds the lock: without it no other may be kept from it."""
    deliveries = at.deliveries()
    whole = deliveries.whole_id(delivery)
    carried = attach(at, deliveries, take_over(at, deliveries, whole, speaker))
    # The lock is the sign of life from here on.
    end_lease(at.root)
    return carried
