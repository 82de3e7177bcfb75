"""Commands of a delivery, from `tidegate plan` to `tidegate report`: options, help and output."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tidegate.cli.options import (
    SPEC,
    By,
    Ci,
    DeliveryId,
    Duration,
    Identity,
    Regions,
    Spec,
    VersionNumber,
    delivery_display,
    duration,
    selected_regions,
    surroundings,
)
from tidegate.cli.settings import Output, given, prints
from tidegate.core.errors import Refused, UsageError
from tidegate.core.text import one_line

if TYPE_CHECKING:
    from pipelines.events.listeners import DeliveryDisplay
    from pipelines.model import Result


@prints(Output.JSON, Output.YAML)
def deliver(
    *,
    spec: Spec = SPEC,
    users: Annotated[bool, Option("--users", help="Generate the load that `traffic` in the spec describes.")] = False,
    version: VersionNumber = None,
    metrics_address: Annotated[
        str,
        Option(
            metavar="HOST:PORT",
            help="Address of /metrics while it runs; 0.0.0.0 for scrapes from outside, port 0 for any.",
        ),
    ] = "127.0.0.1:0",
    ci: Ci = False,
    identity: Identity = None,
) -> int:
    """Deliver the challenger to all regions, or roll it back.

    Starts engines, shifts user traffic, moves MLflow aliases. When a gate fails, on an error and on
    Ctrl-C, all regions go back to the champion. Changes no files of a model version.

    \b
    Examples:
      tidegate deliver delivery.yaml
      tidegate deliver delivery.yaml --users --output json
      tidegate deliver delivery.yaml --metrics-address 0.0.0.0:9464
      tidegate deliver delivery.yaml --ci
    """
    from pipelines.adapters.specs import read_delivery
    from tidegate.cli.ci import errors_reported, report_delivery
    from tidegate.cli.credentials import prover_of
    from tidegate.core.process import cancelled_by_signals, host_and_port

    display = delivery_display(plain=ci)
    with errors_reported(ci, lambda: display.story):
        # A wrong spec is reported before anything heavy is imported.
        delivery, asker, at = read_delivery(spec), prover_of(identity), surroundings(spec.parent)
        from tidegate.connect import Carrying
        from tidegate.delivering import deliver as run

        listening = host_and_port(metrics_address)
        how = Carrying(display, cancelled_by_signals, users=users, metrics=listening)
        result = asyncio.run(run(at, delivery, how, version=version, asker=asker))
    if ci:
        report_delivery(display.story, result.delivery)
    return _print_result(result, display)


def _print_result(result: Result, display: DeliveryDisplay) -> int:
    """How a delivery ended, and where its report is; returns the exit code that says it."""
    from tidegate.cli.views.delivery import summary
    from tidegate.standing import report_path

    report = report_path(surroundings().state, result.delivery)
    given().show(result.model_dump(mode="json") | {"report": str(report)}, *summary(display.story), f"report: {report}")
    return int(result.exit_code)


@prints(Output.JSON, Output.YAML)
def resume(*, delivery: DeliveryId, by: By = None, identity: Identity = None) -> int:
    """Continue a delivery whose process died. Finished steps are not repeated.

    Shifts traffic and moves aliases as `deliver` does. A step that its region has undone by itself is run again.
    A verdict stands: after a failed gate, all regions go back. Refused while a process carries the delivery, and,
    for a delivery that somebody else requested, to everyone whom `resume` in the spec does not name.

    \b
    Examples:
      tidegate resume 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
      tidegate resume 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f --identity ssh:~/.ssh/id_ed25519
    """
    from tidegate.cli.credentials import prover_of
    from tidegate.connect import Carrying
    from tidegate.core.process import cancelled_by_signals
    from tidegate.delivering import resume as run

    display = delivery_display()
    how = Carrying(display, cancelled_by_signals)
    return _print_result(asyncio.run(run(surroundings(), delivery, how, by=by, prover=prover_of(identity))), display)


@prints(Output.JSON, Output.YAML, Output.NAME)
def approve(
    *,
    delivery: DeliveryId,
    asked: Annotated[str, Argument(metavar="STEP", help="What to answer: a step's id, wave@2, or freeze.")],
    by: By = None,
    reason: Annotated[str, Option(help="Reason; required with --refuse.")] = "",
    refuse: Annotated[bool, Option("--refuse", help="Refuse: the delivery is rolled back.")] = False,
    identity: Identity = None,
) -> int:
    """Approve or refuse a step of a delivery that waits for it.

    Moves nothing: the waiting step reads the answer in the ledger, and counts it when the identity behind it is
    proven, or when the spec accepts names. `freeze` lets a delivery go on during a freeze. The last answer of each
    person before the step begins counts.

    \b
    Examples:
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --identity ssh:~/.ssh/id_ed25519
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --refuse --reason "sale today" --identity ssh:KEY
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --by ann
    """
    from pipelines.adapters.specs import kept_spec
    from pipelines.authority.answering import Hearing, Speaker
    from pipelines.events.state import plan_of
    from registry.deliveries import refuse_ended
    from tidegate.cli.credentials import prover_of
    from tidegate.core.clock import SystemClock

    at, speaker = surroundings(), Speaker(by, prover_of(identity))
    deliveries = at.deliveries()
    summary = deliveries.summary(deliveries.whole_id(delivery))
    refuse_ended(summary)
    # Said from outside: that a person answers does not mean that the delivery's process lives.
    ledger = deliveries.join(summary.id, carries=False)
    events = ledger.recorded()
    hearing = Hearing(kept_spec(deliveries, summary.id, events), summary.id, events, at.identities, SystemClock())
    said = hearing.answer(asked, speaker, reason=reason, refuse=refuse)
    ledger.append(said)
    version = plan_of(events).version
    told: dict[str, object] = {"delivery": summary.id, "question": asked, "answer": said.kind, "reason": reason}
    told |= {"model": version.name, "version": version.version, "by": said.data["by"]}
    given().show(told, f"{said.kind}: {asked} of {version.name} {version.version} by {said.message}", names=[asked])
    return 0


@prints(Output.JSON, Output.YAML, Output.MARKDOWN)
def plan(
    *,
    spec: Annotated[Path, Argument(help="The delivery's spec, or a file of kind Gates.")] = SPEC,
    offline: Annotated[
        bool, Option("--offline", help="Use the spec and its files only; ask no registry and no cluster.")
    ] = False,
    version: VersionNumber = None,
    requests_per_second: Annotated[
        float | None, Option(min=0.001, help="Of all users; without it no durations are shown.")
    ] = None,
    weight: Annotated[float | None, Option(min=0.1, max=99, help="Percent of users on the canary; default: 5.")] = None,
    pairs_per_second: Annotated[
        float | None, Option(min=0.001, max=1000, help="Prompts sent to both versions, for paired gates.")
    ] = None,
    within: Annotated[Duration | None, Option(parser=duration, help="Time until a verdict; default: 30m.")] = None,
) -> int:
    """Show each step, what its gates need, and how long it takes. Changes nothing.

    Lists every reason why `deliver` would not begin. Exits with 2 when the plan, or a version or an object in a
    cluster, is one that `deliver` refuses.

    Of a file of kind Gates, or with an option on traffic: how many requests and how long each gate needs, and the
    smallest regression it detects. Then 3 says that one would not pass a healthy version in time; the fix is printed.

    \b
    Examples:
      tidegate plan delivery.yaml
      tidegate plan delivery.yaml --offline
      tidegate plan delivery.yaml --output json
      tidegate plan delivery.yaml --output markdown > comment.md
      tidegate plan gates.yaml --requests-per-second 20 --weight 5
    """
    from tidegate.core.spec import stated_kind

    traffic = (requests_per_second, weight, pairs_per_second, within)
    if all(each is None for each in traffic) and stated_kind(spec) != "Gates":
        from tidegate.cli.planning import show_plan

        return show_plan(None if offline else surroundings(spec.parent), spec, version)
    if given().output is Output.MARKDOWN:
        raise UsageError("-o: found markdown; of gates alone there are text, json and yaml")
    from tidegate.cli.planning import show_forecasts

    return show_forecasts(
        spec,
        requests_per_second=requests_per_second,
        weight=weight or 5.0,
        pairs_per_second=pairs_per_second,
        within=within or timedelta(minutes=30),
    )


@prints(Output.JSON, Output.YAML, Output.NAME)
def status(
    *,
    spec: Spec = SPEC,
    region: Regions = None,
    last: Annotated[
        int | None, Option(min=1, help="List so many deliveries of the model, newest first, and ask no region.")
    ] = None,
) -> int:
    """Show the last delivery and what every region serves. Changes nothing.

    Exits with 4 when a region cannot be reached, or has no stable engine that is ready.

    \b
    Examples:
      tidegate status
      tidegate status delivery.yaml --output json
      tidegate status --last 5
    """
    from pipelines.adapters.specs import read_delivery
    from tidegate import standing
    from tidegate.cli.views.status import history_lines, status_data, status_lines
    from tidegate.core.clock import SystemClock

    at, delivery = surroundings(spec.parent), read_delivery(spec)
    wanted = selected_regions(delivery, region or (), given().context)
    if last is not None or given().output is Output.NAME:
        found = standing.history(at, delivery, last=last or 1)
        data = [each.model_dump(mode="json") | {"alive": alive} for each, alive in found]
        given().show(data, *history_lines(found), names=[each.id for each, _ in found])
        return 0
    report = asyncio.run(standing.status(at, delivery, wanted))
    given().show(status_data(report), *status_lines(report, SystemClock().now()))
    return int(report.exit_code)


@prints(Output.JSON, Output.YAML)
def rollback(
    *,
    spec: Spec = SPEC,
    to: Annotated[
        str | None, Option(metavar="VERSION", help="Go further back: to `previous`, or to a version's number.")
    ] = None,
    region: Regions = None,
    start: Annotated[bool, Option("--start", help="With --to: start the version where it is not warm.")] = False,
    yes: Annotated[bool, Option("--yes", help="With --to: do not ask for confirmation.")] = False,
) -> int:
    """Roll back all regions now, to the version before the delivery.

    Needs only the kubeconfig and the spec: moves users first, then writes the records if MLflow answers. Stops the
    running delivery, here or elsewhere. Idempotent; going further back takes --to, which asks first.

    \b
    Examples:
      tidegate rollback delivery.yaml
      tidegate rollback delivery.yaml --region ap-south-1
      tidegate rollback delivery.yaml --to previous
      tidegate rollback delivery.yaml --to 6 --yes
    """
    from pipelines.adapters.fleets import require_contexts
    from pipelines.adapters.specs import read_spec
    from pipelines.spec.delivery import Delivery
    from tidegate.core.process import on_after_hangup
    from tidegate.core.spec import load_spec
    from tidegate.way_back import take_back

    # What is started has to be allowed; what is warm is asked nothing.
    wanted = read_spec(spec) if start else load_spec(spec, Delivery)
    regions = selected_regions(wanted, region or (), given().context)
    require_contexts(wanted, regions)
    ask = (lambda _: None) if yes else confirm_move
    with on_after_hangup():
        outcome = asyncio.run(take_back(surroundings(), wanted, to=to, start=start, confirm=ask, regions=regions))
    moved = (f"{region}: version {version}" for region, version in outcome.versions.items())
    given().show({"regions": outcome.versions, "wrong": outcome.wrong}, *moved)
    for line in outcome.wrong:
        print(one_line(f"tidegate: {line}"), file=sys.stderr)
    return int(outcome.exit_code)


def confirm_move(question: str) -> None:
    """Ask the person at the terminal whether production may move.

    Raises:
        UsageError: nobody is there.
        Refused: the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        unasked = f"production would move ({question}), and there is no terminal to confirm it on"
        raise UsageError(unasked, hint="add --yes")
    print(f"{question}\nMove production? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("not confirmed: nothing was changed", hint="answer y, or give --yes")


def report(
    spec: Spec = SPEC,
    file: Annotated[Path, Argument(help="The file to write.")] = Path("report.html"),
    last: Annotated[int, Option(min=1, help="Number of deliveries, newest last.")] = 1,
) -> int:
    """Write the last deliveries as one self-contained HTML page.

    \b
    Examples:
      tidegate report delivery.yaml report.html --last 3
    """
    from pipelines.adapters.specs import read_delivery
    from tidegate.standing import report as run

    run(surroundings(spec.parent), read_delivery(spec), last=last, target=file)
    print(file)
    return 0
