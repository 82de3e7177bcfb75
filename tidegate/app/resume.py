"""Carry a delivery whose process died to its end, here; finished steps are skipped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipelines.delivery_lock import delivery_lock
from pipelines.events.listeners import EventFile
from pipelines.events.state import state_of
from pipelines.model import Result
from pipelines.ports import Listener
from pipelines.run.resume import resume as resume_plan
from pipelines.run.stages import STAGES
from pipelines.state import StateFolder
from rollouts.local.watchdog import end_lease
from tidegate.app.process import cancelled_by_signals
from tidegate.app.reports import keep_report, report_path
from tidegate.app.wiring.attached import ResumeCredentials, attach_delivery, authorize_resume
from tidegate.app.wiring.backends import open_backends, require_packages
from tidegate.app.wiring.model import AttachedDelivery, BackendsOpener
from tidegate.app.wiring.running import (
    DeliveryDisplay,
    DeliveryOutcome,
    Interrupts,
    attached_context,
    uncancelled,
)
from tidegate.app.wiring.stores import open_deliveries
from tidegate.core.threads import call_in_thread


@dataclass(frozen=True)
class ResumeOptions:
    """Which delivery to carry to its end, and who does."""

    delivery: str
    state: Path
    credentials: ResumeCredentials
    tracking_uri: str | None = None
    opener: BackendsOpener = open_backends


def resume(options: ResumeOptions, display: DeliveryDisplay) -> DeliveryOutcome:
    """Carry a delivery whose process died to its end, here; finished steps are skipped.

    Raises:
        TidegateError: it is over or is carried by a process, its spec was not kept, or the caller is not entitled.
    """
    with delivery_lock(StateFolder(options.state).lock):
        attached = _taken_over(options)
        display.story = state_of(attached.ledger.recorded())
        result = asyncio.run(_resume(attached, options.opener, display, cancelled_by_signals))
        keep_report(attached.spec, attached.state, attached.ledger)
    return DeliveryOutcome(result, report_path(attached.state, attached.ledger.delivery))


async def resume_delivery(options: ResumeOptions, display: DeliveryDisplay, interrupts: Interrupts) -> DeliveryOutcome:
    """As `resume`, in an event loop of the caller's, who has the signals too.

    Raises:
        TidegateError: as `resume`.
    """
    with delivery_lock(StateFolder(options.state).lock):
        attached = await uncancelled(call_in_thread(_taken_over, options))
        display.story = state_of(await uncancelled(call_in_thread(attached.ledger.recorded)))
        result = await _resume(attached, options.opener, display, interrupts)
        await call_in_thread(keep_report, attached.spec, attached.state, attached.ledger)
    return DeliveryOutcome(result, report_path(attached.state, attached.ledger.delivery))


def _taken_over(options: ResumeOptions) -> AttachedDelivery:
    """Carried by this process from here on, which holds the lock: without it no other may be kept from it."""
    require_packages(options.opener)
    state, credentials = options.state, options.credentials
    deliveries = open_deliveries(state, options.tracking_uri)
    delivery = deliveries.whole_id(options.delivery)
    resumed = authorize_resume(credentials, deliveries, delivery)
    ledger = deliveries.take_over(delivery)
    if resumed is not None:
        ledger.append(resumed)
    attached = attach_delivery(deliveries, ledger, state, options.tracking_uri, patience=timedelta(0))
    # The lock is the sign of life from here on.
    end_lease(attached.state.root)
    return attached


async def _resume(
    attached: AttachedDelivery, opener: BackendsOpener, display: DeliveryDisplay, interrupts: Interrupts
) -> Result:
    listeners: list[Listener] = [display]
    events = EventFile(attached.folder / "events.jsonl")
    # Only where it began: elsewhere the ledger has more of the delivery than a file that begins now.
    if events.path.exists():
        listeners.insert(0, events)
    with display:
        async with (
            interrupts() as impatient,
            attached_context(attached, STAGES, opener, listeners, impatient) as context,
        ):
            return await resume_plan(context)
