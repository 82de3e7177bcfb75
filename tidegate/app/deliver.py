"""One delivery from this machine, from the lock to the report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from prometheus_client import Metric

from pipelines.authority.verification import refuse_unanswerable
from pipelines.delivery_lock import delivery_lock, refuse_second
from pipelines.events.artifacts import Trials, keep_spec
from pipelines.events.listeners import EventFile, QueuedListener
from pipelines.events.writer import limits_of
from pipelines.model import Ending, Plan, Result
from pipelines.ports import Deliveries, DeliveryLedger, Listener
from pipelines.run.engine import deliver as run_plan
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from pipelines.state import StateFolder
from pipelines.statements import Prover
from pipelines.views.metrics import families
from rollouts.errors import KubeconfigWrong
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.app.git.preview import refuse_unreadable_sync, refuse_unwritable_git
from tidegate.app.plan import adopt_versions, images_of, plan_for, refuse_outdated, require_files, resolve_plan
from tidegate.app.process import cancelled_by_signals, note
from tidegate.app.reports import leave_report, report_path
from tidegate.app.wiring.backends import (
    open_backends,
    refuse_unready_machine,
    refuse_users_of_clusters,
    require_packages,
)
from tidegate.app.wiring.engines.providers import require_gpus_here
from tidegate.app.wiring.fleets import require_contexts
from tidegate.app.wiring.model import BackendsOpener, DeliveryInputs
from tidegate.app.wiring.running import (
    DeliveryDisplay,
    DeliveryOutcome,
    Interrupts,
    Recording,
    carrier_of,
    delivery_context,
    heartbeat,
    journal_of,
    served_numbers,
    uncancelled,
)
from tidegate.app.wiring.services import notifier_for
from tidegate.app.wiring.stores import open_deliveries, open_registry
from tidegate.app.wiring.trust import local_identities, trusted_images
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.threads import call_in_thread


@dataclass(frozen=True)
class DeliverOptions:
    """What to deliver, and what this process takes part in while it does."""

    spec: Delivery
    spec_path: Path
    state: Path
    """The folder with what is this machine's own."""
    trusted: Trusted
    tracking_uri: str | None = None
    """Of MLflow; None for the embedded store in the state folder."""
    version: str | None = None
    """The version's number; None for the one that the alias points at."""
    users: bool = False
    """Play the users that the spec describes."""
    keep_fleet: bool = False
    """Leave up a fleet that this starts."""
    metrics: tuple[str, int] | None = ("127.0.0.1", 0)
    """Host and port at which the delivery's own numbers are served; None for nowhere."""
    requester: Prover | None = None
    """Proves who asks for the delivery; None where nobody does."""
    opener: BackendsOpener = open_backends


def deliver(options: DeliverOptions, display: DeliveryDisplay) -> DeliveryOutcome:
    """Deliver the version to every region, or take it back; a signal or a terminal that closes takes it back too.

    Raises:
        TidegateError: nothing was begun: another delivery runs, an approval could not be given, MLflow is away.
    """
    request = _request_of(options)
    inputs = request.inputs
    with delivery_lock(inputs.state.lock):
        # Nothing is opened or started before the lock is held and the plan stands.
        adopt_versions(inputs.spec, inputs.registry, version=options.version)
        plan = plan_for(inputs.spec, inputs.folder, inputs.registry, version=options.version)
        plan = resolve_plan(plan, inputs.spec, options.spec_path, inputs.registry, inputs.trusted)
        require_files(inputs.spec, plan, inputs.registry)
        refuse_unwritable_git(inputs.spec)
        refuse_unreadable_sync(inputs.spec)
        result = asyncio.run(_deliver_recorded(_opened(request, plan), display, cancelled_by_signals))
    return DeliveryOutcome(result, report_path(inputs.state, result.delivery))


@dataclass(frozen=True)
class DryRun:
    """What `deliver` would do now."""

    plan: Plan
    refusals: Sequence[TidegateError]
    """Why it would not, in the order in which it looks."""

    @property
    def exit_code(self) -> ExitCode:
        """That of `deliver`, where it would be refused."""
        return self.refusals[0].exit_code if self.refusals else ExitCode.DELIVERED


def dry_run(options: DeliverOptions) -> DryRun:
    """Make the plan and look at everything that `deliver` looks at before it begins.

    Writes nothing, starts nothing and asks nobody for a proof. Memory, cores and ports of this machine are left to
    the engines' start.

    Raises:
        TidegateError: there is no plan, which `deliver` is refused for too.
    """
    spec, registry = options.spec, open_registry(options.state, options.tracking_uri)
    plan = plan_for(spec, options.spec_path.parent, registry, version=options.version, preview=True)
    checks: tuple[Callable[[], object], ...] = (
        *_checks_of_start(options),
        partial(require_files, spec, plan, registry),
        partial(refuse_unwritable_git, spec),
        partial(refuse_unreadable_sync, spec),
        lambda: images_of(plan, spec, registry, trusted_images(options.trusted)),
    )
    refusals = [error for check in checks if (error := _error_of(check))]
    # A cluster is looked at where its context is there; else its absence is said already.
    contexts = any(isinstance(error, KubeconfigWrong) for error in refusals)
    if isinstance(spec.fleet, ArgoFleetSpec) and not contexts:
        from tidegate.app.wiring.clusters import refuse_foreign_objects_in_clusters

        refusals += filter(None, [_error_of(lambda: asyncio.run(refuse_foreign_objects_in_clusters(spec)))])
    return DryRun(plan, refusals)


def _checks_of_start(options: DeliverOptions) -> tuple[Callable[[], object], ...]:
    """What is looked at before a plan is made, in the order of `deliver`."""
    spec, state = options.spec, StateFolder(options.state)
    approvers = options.trusted.trust.approvers
    return (
        partial(require_packages, options.opener, spec),
        *([partial(require_gpus_here, spec)] if options.opener is open_backends else []),
        partial(refuse_users_of_clusters, spec, users=options.users),
        partial(require_contexts, spec, every=True),
        partial(refuse_unanswerable, spec, approvers, requester_known=options.requester is not None),
        partial(refuse_second, state.lock),
        lambda: open_deliveries(
            options.state, options.tracking_uri, options.spec_path.parent, leftovers=False
        ).refuse_live(spec.model.name),
        lambda: asyncio.run(refuse_unready_machine(spec, state)),
    )


def _error_of(check: Callable[[], object]) -> TidegateError | None:
    try:
        check()
    except TidegateError as error:
        return error
    return None


async def deliver_plan(
    options: DeliverOptions, plan: Plan, display: DeliveryDisplay, interrupts: Interrupts
) -> DeliveryOutcome:
    """As `deliver`, of a plan that was made before, in an event loop of the caller's, who has the signals too.

    Raises:
        TidegateError: nothing was begun; as `deliver`.
        PlanOutdated: what the plan rests on has changed since.
    """
    request = await call_in_thread(_request_of, options)
    inputs = request.inputs
    with delivery_lock(inputs.state.lock):
        await call_in_thread(refuse_unwritable_git, inputs.spec)
        await call_in_thread(refuse_unreadable_sync, inputs.spec)
        await call_in_thread(refuse_outdated, plan, inputs.spec, options.spec_path, inputs.registry)
        opened = await uncancelled(call_in_thread(_opened, request, plan))
        result = await _deliver_recorded(opened, display, interrupts)
    return DeliveryOutcome(result, report_path(inputs.state, result.delivery))


def _request_of(options: DeliverOptions) -> _DeliveryRequest:
    require_packages(options.opener, options.spec)
    if options.opener is open_backends:
        require_gpus_here(options.spec)
        refuse_users_of_clusters(options.spec, users=options.users)
        require_contexts(options.spec, every=True)
    refuse_unanswerable(options.spec, options.trusted.trust.approvers, requester_known=options.requester is not None)
    state, folder = StateFolder(options.state), options.spec_path.parent
    return _DeliveryRequest(
        inputs=DeliveryInputs(
            spec=options.spec,
            folder=folder,
            state=state,
            registry=open_registry(options.state, options.tracking_uri),
            users=options.users,
            keep=options.keep_fleet,
            trusted=trusted_images(options.trusted),
            identities=local_identities(options.trusted),
            asker=options.requester,
            approvers=options.trusted.trust.approvers,
        ),
        deliveries=open_deliveries(options.state, options.tracking_uri, folder),
        options=options,
    )


@dataclass(frozen=True)
class _DeliveryRequest:
    """The options, with the adapters that the lock, the plan and the ledger need."""

    inputs: DeliveryInputs
    deliveries: Deliveries
    options: DeliverOptions


@dataclass(frozen=True)
class _OpenedDelivery:
    """A delivery that has a ledger."""

    request: _DeliveryRequest
    plan: Plan
    ledger: DeliveryLedger
    spec_file: str | None


def _opened(request: _DeliveryRequest, plan: Plan) -> _OpenedDelivery:
    inputs = request.inputs
    digest = sha256(request.options.spec_path.read_bytes()).hexdigest()
    ledger = request.deliveries.open_delivery(
        plan.version, plan.champion, spec_digest=digest, engines=plan.engine_names
    )
    request = replace(request, inputs=replace(inputs, carrier=carrier_of(ledger, inputs.spec)))
    return _OpenedDelivery(request, plan, ledger, _keep_spec(ledger, request))


async def _deliver_recorded(opened: _OpenedDelivery, display: DeliveryDisplay, interrupts: Interrupts) -> Result:
    """The delivery, and then its report: nobody waits for that."""
    request, plan, ledger = opened.request, opened.plan, opened.ledger
    inputs = request.inputs
    folder = inputs.state.delivery(ledger.delivery)
    events = EventFile(folder / "events.jsonl")

    def numbers() -> Iterable[Metric]:
        return families(display.story, delivery=ledger.delivery)

    with ExitStack() as last:
        with (
            notifier_for(inputs.spec.notify, plan, ledger) as notifier,
            display,
            QueuedListener([events, display]) as displays,
        ):
            listeners: list[Listener] = [displays, notifier]
            journal = last.enter_context(journal_of(inputs, ledger, listeners, limits_of(inputs.spec.patience)))
            written = Recording(journal, Trials(folder, journal), opened.spec_file)
            async with interrupts() as impatient, heartbeat(journal.beat):
                result = await _deliver_on_backends(request, plan, replace(written, impatient=impatient), numbers)
        source = (ledger.delivery, events)
        target = report_path(inputs.state, ledger.delivery)
        leave_report(inputs.spec, inputs.state, source, target, journal.attach)
        await journal.settle()
    return result


def _keep_spec(ledger: DeliveryLedger, request: _DeliveryRequest) -> str | None:
    """Where the spec lies among the kept files; a delivery without them goes on, but cannot be resumed."""
    try:
        return keep_spec(ledger, request.options.spec_path, request.inputs.spec)
    except TidegateError as error:
        note(f"the spec is not kept, so that `tidegate resume` will not be possible: {error}")
        return None


async def _deliver_on_backends(
    request: _DeliveryRequest, plan: Plan, written: Recording, numbers: Callable[[], Iterable[Metric]]
) -> Result:
    """The delivery inside its fleet. What goes wrong before it begins closes the ledger too."""
    result: Result | None = None
    try:
        async with AsyncExitStack() as stack:
            metrics = await stack.enter_async_context(served_numbers(numbers, request.options.metrics))
            inputs = replace(request.inputs, images=plan.resolved.images if plan.resolved else {})
            backends = await stack.enter_async_context(request.options.opener(inputs, metrics))
            result = await run_plan(delivery_context(inputs, plan, STAGES, written, backends))
    except TidegateError as error:
        if result is None:
            return await written.journal.closed(Ending.FAILED, str(error), error.exit_code)
        note(f"the delivery is over, but what it started did not end well: {error}")
    except asyncio.CancelledError:
        if result is None:
            return await written.journal.closed(
                Ending.INTERRUPTED, "asked to stop before it began", ExitCode.INTERRUPTED
            )
        note("the delivery is over; what it started is being stopped")
    assert result is not None, "a delivery ends with a result or with an error"
    return result
