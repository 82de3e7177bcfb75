"""`tidegate status`, of regions and of deliveries, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gates.model import GateOutcome
from pipelines.views.status import StatusReport
from pipelines.views.wording import by_reason, people
from registry.model import DeliverySummary
from rollouts.model import CarrierHeartbeat, RegionPhase, RegionState
from tidegate.core.text import aligned
from tidegate.core.units import duration

NOTABLE_SECONDS = 60.0
"""A carrier renews its heartbeat every few seconds; a longer silence is worth a word."""


def status_lines(report: StatusReport, now: datetime) -> Iterator[str]:
    """The delivery, its records, then region after region."""
    yield (first := _delivery_line(report))
    for what, who in people(report.story).items():
        yield f"{what}: {who}"
    for step, said in steps_at_work(report).items():
        yield f"{step}: {said}"
    for each in report.story.left:
        yield f"still open: {each}"
    if report.unwritten:
        yield f"{report.unwritten} events are not yet written: MLflow has not taken them"
    for region in report.regions:
        yield from region_lines(region, told=first)
        if region.region in report.carried:
            yield carrier_line(region.region, report.carried[region.region], now)
    for reason, names in by_reason(report.silent).items():
        yield f"{', '.join(names)}: cannot be seen: {reason}"
    if not report.regions and not report.silent:
        yield "no fleet runs here"
    for region in report.regions:
        yield from other_version_lines(region, report)


def status_data(report: StatusReport) -> dict[str, object]:
    """The same as data for `--output json`."""
    story = report.story.model_dump(mode="json", include={"requester", "left"})
    return {
        "delivery": report.last.model_dump(mode="json") if report.last else None,
        **story,
        "approvals": list(report.story.allowed),
        "steps": steps_at_work(report),
        **report.model_dump(mode="json", exclude={"last", "story"}),
    }


def history_lines(found: Sequence[tuple[DeliverySummary, bool]]) -> Iterator[str]:
    """A line for each delivery, below the names of the columns."""
    rows = [("DELIVERY", "ENGINE", "STARTED (UTC)", "TOOK", "OUTCOME")]
    for past, alive in found:
        took = duration((past.ended - past.started).total_seconds()) if past.ended else "-"
        at = f"at {past.last_step or 'its start'}"
        outcome = f"{past.outcome}: {past.reason}" if past.outcome else f"running, {at}" if alive else f"died {at}"
        # Of an engine that is more than its version its name says both.
        rows.append((past.id, past.engines[0], f"{past.started.astimezone(UTC):%F %H:%M}", took, outcome))
    return aligned(rows) if found else iter(["no delivery yet"])


def steps_at_work(report: StatusReport) -> dict[str, str]:
    """What each step that runs, or waits for a person or a freeze, said last; with the gates that cannot see."""
    at_work = {step.id: [step.message] for step in report.story.steps if step.is_at_work and report.alive}
    for gate in report.story.gates:
        if gate.step in at_work and gate.latest.outcome is GateOutcome.ERROR:
            at_work[gate.step].append(f"gate {gate.name} cannot see: {gate.latest.reason}")
    return {step: "; ".join(filter(None, said)) for step, said in at_work.items() if any(said)}


def carrier_line(region: str, carried: CarrierHeartbeat, now: datetime) -> str:
    """Who carries a region's trial, since when nothing was heard, and what comes of that."""
    if carried.heard is None:
        return f"{region}: carried by {carried.who}, of whom nothing was heard yet"
    silent = max((now - carried.heard).total_seconds(), 0.0)
    told = f"{region}: carried by {carried.who}, heard of {duration(silent)} ago"
    left = carried.unattended_seconds - silent
    if silent < NOTABLE_SECONDS:
        return told
    return f"{told}; a trial there ends by itself " + (f"in {duration(left)}" if left > 0 else "at any moment")


def _delivery_line(report: StatusReport) -> str:
    if report.unreadable is not None:
        return f"MLflow cannot be read, so what became of the last delivery is not known: {report.unreadable}"
    if (last := report.last) is None:
        return "no delivery yet"
    head, step = f"delivery {last.id[:8]} of version {last.version}", last.last_step or "its start"
    if last.outcome:
        return f"{head}: {last.outcome}: {last.reason}"
    process = f"process {last.pid} on {last.host}"
    if report.alive:
        return f"{head}: at {step}, {'carried step by step' if last.patience_seconds else process}"
    heard = f"{process} was last heard of at {last.heartbeat:%F %T} UTC"
    gone = "nobody carries it" if last.patience_seconds else heard
    hint = f"`tidegate resume {last.id}` carries it on, the next `tidegate deliver` closes it and starts again"
    return f"{head}: died at {step}; {gone}; {hint}"


def region_lines(region: RegionState, *, told: str = "") -> Iterator[str]:
    """What a region serves and what is wrong there; what was `told` already is not told again."""
    arms = [
        f"{arm.role} {arm.version}{'' if arm.ready else ' (not ready)'}"
        for arm in (region.stable, region.canary, region.previous)
        if arm is not None
    ]
    traffic = f", {region.weight} % on the canary, {region.mirror} % mirrored" if region.canary else ""
    problem = f": {region.problem}" if region.problem else ""
    nothing = "" if region.phase is RegionPhase.UNKNOWN else ", empty"
    served = f", {', '.join(arms)}" if arms else nothing
    yield f"{region.region}: {region.phase}{served}{traffic}, at {region.entry}{problem}"
    more = [region.taken_away] if region.taken_away and not region.problem else []
    more += [str(each) for each in region.foreign_objects if str(each) not in (region.problem or "")]
    more += [str(region.unattended)] if region.unattended and str(region.unattended) not in told else []
    yield from (f"{region.region}: {each}" for each in more)


def other_version_lines(region: RegionState, report: StatusReport) -> Iterator[str]:
    """That its users are not on what the registry says, or that somebody else asks for something, and who."""
    champion, foreign = report.in_production, region.foreign_change
    expected = {champion, report.last.version if report.last and report.alive else champion}
    who = foreign.reason if foreign and foreign.version not in expected else ""
    if champion and region.stable and region.stable.version not in expected:
        told = f"users are on version {region.stable.version}, and the registry says version {champion}"
        yield f"{region.region}: {told}" + (f": {who or foreign.reason}" if foreign else "")
    elif who:
        yield f"{region.region}: {who}"
