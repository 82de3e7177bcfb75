"""Whether a delivery's record is what was written, and what lies beside it is what it was opened with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.kept_files import SPEC, KeptFiles, bring_spec
from pipelines.model import Plan
from pipelines.ports import Event, Registry
from pipelines.prompts import golden_set
from pipelines.recorded import outcome_of, plan_of, spec_file_of
from pipelines.resolved import refuse_other_files, refuse_other_plan
from pipelines.spec import Delivery
from pipelines.trials import FOLDER as EVIDENCE
from pipelines.vouched import proven, vouched
from registry.chain import Finding, heads_of
from registry.conventions import ENGINE_IMAGE
from registry.digests import digest_files
from registry.model import DeliverySummary
from registry.record import Record
from tidegate.core.errors import TidegateError
from tidegate.core.model import Value
from tidegate.core.spec import load_spec


class Audit(Value):
    """What was found of one delivery."""

    delivery: str
    chained: bool
    """Whether its events name each other; those of an older tidegate do not, and prove nothing."""
    events: int
    keys: tuple[str, ...]
    """Of those who signed; empty when nobody did."""
    heads: tuple[str, ...]
    """The hashes of the last events: noted elsewhere, they prove that nothing was cut off behind them."""
    findings: tuple[Finding, ...]


def audit(
    summary: DeliverySummary, record: Record, found: Sequence[Finding], kept: KeptFiles, registry: Registry
) -> Audit:
    """Compare everything that can be compared.

    Args:
        summary: the delivery as lists show it.
        record: its events.
        found: what the chain itself shows.
        kept: where its files are kept.
        registry: whose tags are compared with the plan.
    """
    beside = [*_beside(summary.id, record.events, kept, registry), *_ending(summary, record.events)]
    return Audit(
        delivery=summary.id,
        chained=record.chained,
        events=len(record.events),
        keys=tuple(sorted({entry.link.key for entry in record.entries if entry.link.key})),
        heads=heads_of(record.entries),
        findings=(*found, *beside),
    )


def _beside(delivery: str, events: Sequence[Event], kept: KeptFiles, registry: Registry) -> Iterator[Finding]:
    opened = any((event.step, event.kind) == ("delivery", "started") for event in events)
    if not opened:
        return
    try:
        plan = plan_of(events)
    except TidegateError as error:
        yield Finding(what="changed", where="the plan", why=str(error))
        return
    if plan.resolved is None:
        return
    with TemporaryDirectory(prefix="tidegate-audit-") as folder:
        yield from _refused("the spec", lambda: _compare_spec(plan, events, delivery, kept, Path(folder)))
        for path in kept.fetch(delivery, EVIDENCE, Path(folder)):
            states, content = vouched(events).get(path.stem, ()), path.read_bytes()
            yield from _refused(path.stem, partial(proven, path.stem, content, states))
    yield from _tags(plan, registry)


def _compare_spec(plan: Plan, events: Sequence[Event], delivery: str, kept: KeptFiles, folder: Path) -> None:
    spec_file = spec_file_of(events)
    if spec_file is None:
        return
    path = bring_spec(kept, delivery, spec_file, folder)
    refuse_other_files(plan.resolved, digest_files(folder / SPEC), spec_file, delivery)
    spec = load_spec(path, Delivery)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=delivery)


def _refused(where: str, compare: Callable[[], object]) -> Iterator[Finding]:
    try:
        compare()
    except TidegateError as error:
        yield Finding(what="changed", where=where, why=error.message)


def _tags(plan: Plan, registry: Registry) -> Iterator[Finding]:
    images = plan.resolved.images if plan.resolved else {}
    for version in (plan.version, plan.champion):
        planned = images.get(version.version)
        if planned is None:
            continue
        now = registry.tags(version).get(ENGINE_IMAGE)
        if now != planned:
            why = f"says {now or 'nothing'}; planned was {planned}"
            yield Finding(what="changed", where=f"{ENGINE_IMAGE} of {version.uri}", why=why)


def _ending(summary: DeliverySummary, events: Sequence[Event]) -> Iterator[Finding]:
    """What lists say of the end stands in tags of its own."""
    result = outcome_of(events, summary.id)
    if summary.ended is None or (result is None and summary.outcome == "interrupted"):
        return  # one that died is closed by whoever finds it, without an event
    said = str(result.ending) if result else "nothing"
    if said != summary.outcome:
        why = f"lists say {summary.outcome}, its events say {said}"
        yield Finding(what="changed" if result else "removed", where="the ending", why=why)
