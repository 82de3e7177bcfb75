"""`tidegate rollout get|list|status|watch|promote|abort|...`: one Rollout of one cluster, shown or acted on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

from rich.console import RenderableType
from rich.live import Live

from rollouts.argo.actions import ActionResult, RolloutClient
from rollouts.argo.compare_and_set import ANY_STATE, Precondition
from rollouts.argo.state import health_of
from rollouts.argo.view import RolloutSummary, RolloutView, read_owned_resources, rollout_summary, rollout_view
from rollouts.argo.watch import WaitOutcome, WaitResult, observe, rollout_views, wait_for_rollout
from rollouts.argo.workload import workload_of
from rollouts.errors import NotFound, NotPossible
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import ROLLOUTS
from tidegate.app.process import note
from tidegate.app.wiring.fleets import cluster_client
from tidegate.cli.output import ListOutput, OutputForm, data_line, print_data, print_names, say
from tidegate.cli.rollout_options import RolloutLocation, RolloutOptions, location_of
from tidegate.cli.views.console import PlainConsole
from tidegate.cli.views.rollout import change_line, health_text, rows_table, screen
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, Refused, UsageError

WIDE = 400
"""Columns of what is no terminal: nothing in a log or a pipe is cut to fit."""


def show_rollout(asked: RolloutOptions, stuck_after: timedelta, *, output: OutputForm) -> int:
    """Print one Rollout and all that belongs to it."""
    picture = asyncio.run(_picture(asked, stuck_after.total_seconds()))
    if output.is_data:
        print_data(picture.model_dump(mode="json"), output)
    else:
        print_renderable(screen(picture, SystemClock().now()))
    return 0


def list_rollouts(asked: RolloutOptions, *, output: OutputForm) -> int:
    """Print a line for each Rollout of the namespace."""
    rows = asyncio.run(_rows(asked))
    if output.is_data:
        print_data([row.model_dump(mode="json") for row in rows], output)
    elif output is ListOutput.NAME:
        print_names(row.name for row in rows)
    elif rows:
        print_renderable(rows_table(rows))
    else:
        note("there are no Rollouts here")
    return 0


def print_renderable(renderable: RenderableType) -> None:
    """On stdout: in colour on a terminal, in full and without blanks at line ends where there is none."""
    if sys.stdout.isatty():
        PlainConsole().print(renderable)
        return
    console = PlainConsole(width=WIDE)
    with console.capture() as captured:
        console.print(renderable)
    say(*(line.rstrip() for line in captured.get().splitlines()))


@asynccontextmanager
async def _cluster_of(place: RolloutLocation) -> AsyncIterator[Cluster]:
    """The Rollout's cluster, to be asked; who finds no Rollout there is told where it was looked for."""
    async with cluster_client(place.context, place.namespace) as cluster:
        try:
            yield cluster
        except NotFound as error:
            hint = f"it was looked for in namespace {cluster.namespace}; -n and --context name other places"
            raise NotFound(error.message, status=error.status, reason=error.reason, hint=hint) from error


async def _picture(asked: RolloutOptions, stuck_after_seconds: float) -> RolloutView:
    clock, place = SystemClock(), location_of(asked)
    async with _cluster_of(place) as cluster:
        family = await read_owned_resources(cluster, place.name)
    now = clock.now()
    health = health_of(family.rollout, now=now, stuck_after_seconds=stuck_after_seconds, workload=family.workload)
    return rollout_view(family, health, now=now)


async def _rows(asked: RolloutOptions) -> list[RolloutSummary]:
    clock, place = SystemClock(), location_of(asked, named=False)
    async with _cluster_of(place) as cluster:
        found = (await cluster.list(ROLLOUTS)).items
        workloads = await asyncio.gather(*(workload_of(cluster, rollout) for rollout in found))
    now = clock.now()
    return [
        rollout_summary(rollout, health_of(rollout, now=now, workload=workload), workload=workload)
        for rollout, workload in zip(found, workloads, strict=True)
    ]


EXIT_CODES = {
    WaitOutcome.HEALTHY: ExitCode.DELIVERED,
    WaitOutcome.DEGRADED: ExitCode.ROLLED_BACK,
    WaitOutcome.PAUSED: ExitCode.USAGE,
    WaitOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    WaitOutcome.STUCK: ExitCode.OUTSIDE,
    WaitOutcome.TIMEOUT: ExitCode.OUTSIDE,
    WaitOutcome.PROGRESSING: ExitCode.OUTSIDE,
}
"""Paused shares its code with what was refused for now: nothing happens until somebody says something else."""


def report_status(asked: RolloutOptions, timeout: timedelta, stuck_after: timedelta, *, output: OutputForm) -> int:
    """Wait, then print how it ended up."""
    place = location_of(asked)
    settled = asyncio.run(_wait(asked, timeout.total_seconds(), stuck_after.total_seconds()))
    code = EXIT_CODES[settled.outcome]
    if output.is_data:
        row = rollout_summary(settled.rollout, settled.health)
        print_data(
            {
                "outcome": settled.outcome,
                "exit_code": code,
                "waited_seconds": round(settled.waited_seconds, 1),
                "rollout": row.model_dump(mode="json"),
            },
            output,
        )
    else:
        late = f"not there after {timeout}: " if settled.outcome is WaitOutcome.TIMEOUT else ""
        say(f"{place.name}: {late}{health_text(settled.health)}")
    return code


async def _wait(asked: RolloutOptions, within_seconds: float, stuck_after_seconds: float) -> WaitResult:
    clock, place = SystemClock(), location_of(asked)
    async with _cluster_of(place) as cluster:
        return await wait_for_rollout(
            cluster, clock, place.name, within_seconds=within_seconds, stuck_after_seconds=stuck_after_seconds
        )


Show = Callable[[RolloutView], None]


def watch_rollout(
    asked: RolloutOptions, timeout: timedelta | None, stuck_after: timedelta, *, output: OutputForm
) -> int:
    """Show it until Ctrl-C, or until the time is over."""
    within_seconds = timeout.total_seconds() if timeout is not None else None
    stuck_after_seconds = stuck_after.total_seconds()

    def follow(show: Show) -> None:
        asyncio.run(_follow(asked, show, within_seconds, stuck_after_seconds))

    console = PlainConsole()
    try:
        if output.is_data:
            follow(_new_lines(lambda picture: data_line(picture.model_dump(mode="json"), output)))
        elif console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI"):
            with Live(console=console, auto_refresh=False) as live:
                follow(lambda picture: live.update(screen(picture, SystemClock().now()), refresh=True))
        else:
            follow(_new_lines(change_line))
    except KeyboardInterrupt:
        pass  # how a person ends it
    return 0


def _new_lines(line: Callable[[RolloutView], str]) -> Show:
    """Prints a line whenever there is something new in it."""
    last = ""

    def show(picture: RolloutView) -> None:
        nonlocal last
        new = line(picture)
        if new != last:
            say(new)
        last = new

    return show


async def _follow(asked: RolloutOptions, show: Show, within_seconds: float | None, stuck_after_seconds: float) -> None:
    clock, place = SystemClock(), location_of(asked)
    begun = clock.monotonic()
    async with _cluster_of(place) as cluster:
        stream = rollout_views(cluster, clock, place.name, stuck_after_seconds=stuck_after_seconds)
        async with aclosing(stream) as shown:
            async for picture in shown:
                show(picture)
                if within_seconds is not None and clock.monotonic() - begun >= within_seconds:
                    return


Act = Callable[[RolloutClient, str], Awaitable[ActionResult]]
"""Does it to the Rollout of that name."""


def promote(
    asked: RolloutOptions,
    *,
    full: bool,
    skip_step: bool,
    to_step: int | None,
    expected: Precondition | None,
    output: OutputForm,
) -> int:
    """On, past one step, to a step, or past all."""
    if full + skip_step + (to_step is not None) > 1:
        raise UsageError("--full, --skip-step and --to-step: only one of them", hint="leave out the others")
    if to_step is not None:
        return _act_on(asked, "moved", lambda rollouts, name: rollouts.to_step(name, to_step, expected), output=output)
    if full:
        return _act_on(
            asked, "promoted in full", lambda rollouts, name: rollouts.promote_full(name, expected), output=output
        )
    if skip_step:
        return _act_on(asked, "moved", lambda rollouts, name: rollouts.skip_step(name, expected), output=output)
    return _act_on(asked, "promoted", lambda rollouts, name: rollouts.promote(name, expected), output=output)


def abort(asked: RolloutOptions, *, expected: Precondition | None, output: OutputForm) -> int:
    """All users back to the stable version."""
    return _act_on(asked, "aborted", lambda rollouts, name: rollouts.abort(name, expected), output=output)


def retry(asked: RolloutOptions, *, output: OutputForm) -> int:
    """The aborted version again."""
    return _act_on(asked, "retried", lambda rollouts, name: rollouts.retry(name), output=output)


def undo(asked: RolloutOptions, *, revision: int, output: OutputForm) -> int:
    """The pod template of an earlier revision."""
    return _act_on(asked, "undone", lambda rollouts, name: rollouts.undo(name, revision), output=output)


def pause(asked: RolloutOptions, *, output: OutputForm) -> int:
    """Hold it."""
    return _act_on(asked, "paused", lambda rollouts, name: rollouts.pause(name), output=output)


def resume(asked: RolloutOptions, *, output: OutputForm) -> int:
    """Let it go."""
    return _act_on(asked, "resumed", lambda rollouts, name: rollouts.resume(name), output=output)


def restart(asked: RolloutOptions, *, after: timedelta, output: OutputForm) -> int:
    """New pods."""
    at = SystemClock().now() + after
    return _act_on(asked, "restarting", lambda rollouts, name: rollouts.restart(name, at), output=output)


def set_image(asked: RolloutOptions, *, assignment: str, output: OutputForm) -> int:
    """Another image."""
    container, _, image = assignment.partition("=")
    if not container or not image:
        raise UsageError(f"found {assignment!r}; expected CONTAINER=IMAGE", hint="* for every container")
    return _act_on(asked, "updated", lambda rollouts, name: rollouts.set_image(name, container, image), output=output)


def expected_of(pod_hash: str | None, step: int | None = None) -> Precondition | None:
    """What the caller thinks; None lets the action take what it finds."""
    return (
        None if pod_hash is None and step is None else ANY_STATE.model_copy(update={"pod_hash": pod_hash, "step": step})
    )


def _act_on(asked: RolloutOptions, done: str, act: Act, *, output: OutputForm) -> int:
    place = location_of(asked)
    try:
        outcome, row = asyncio.run(_carry_out(asked, act))
    except NotPossible as refusal:
        # Nothing was changed: that is no fault of the cluster.
        raise Refused(refusal.message, hint=refusal.hint) from refusal
    if output.is_data:
        sent = [request.model_dump(mode="json", exclude={"body", "resource"}) for request in outcome.sent]
        print_data({"done": done, "sent": sent, "rollout": row.model_dump(mode="json")}, output)
    else:
        said = done if outcome.sent else f"nothing to do, {done} already"
        say(f"{place.name}: {said}; now {health_text(row.health)}")
    return 0


async def _carry_out(asked: RolloutOptions, act: Act) -> tuple[ActionResult, RolloutSummary]:
    clock, place = SystemClock(), location_of(asked)
    async with _cluster_of(place) as cluster:
        outcome = await act(RolloutClient(cluster, clock), place.name)
        look, _ = await observe(cluster, clock, outcome.rollout)
    return outcome, rollout_summary(outcome.rollout, look.health)
