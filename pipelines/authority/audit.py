"""Whether a delivery's record is what was written, and what lies next to it is what it was opened with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from gates.transcript import read, replay
from pipelines.events.artifacts import FOLDER as EVIDENCE
from pipelines.events.artifacts import (
    SPEC,
    Vouched,
    bring_spec,
    proven,
    refuse_shorter,
    transcripts,
    vouched,
)
from pipelines.events.state import outcome_of, plan_of, spec_file_of
from pipelines.model import Plan
from pipelines.plan.planner import refuse_other_files, refuse_other_plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from registry.chain import ChainEntry, ChainFinding, heads_of, vanished
from registry.conventions import CHAMPION, ENGINE_IMAGE, VERSION
from registry.deliveries import MlflowDeliveries
from registry.files import digest_files
from registry.model import DeliverySummary, Event
from registry.record import LedgerRecord
from registry.versions import MlflowRegistry
from tidegate.core.errors import NotGenuine, TidegateError, UsageError
from tidegate.core.files import write_atomically
from tidegate.core.model import Value
from tidegate.core.spec import SpecError, load_spec

_HASH = re.compile("[0-9a-f]{64}")


class Audit(Value):
    """What was found of one delivery."""

    delivery: str
    events: int
    keys: tuple[str, ...]
    """Of those who signed; empty when nobody did."""
    heads: tuple[str, ...]
    """The hashes of the last events: noted elsewhere, they prove that nothing was cut off behind them."""
    findings: tuple[ChainFinding, ...]
    judged_again: tuple[str, ...] = ()
    """The trials whose evidence was judged again, with the same verdicts."""

    @property
    def lines(self) -> Iterator[str]:
        """For a person."""
        signed = f"signed by {', '.join(self.keys)}" if self.keys else "signed by nobody"
        verdict = f"{len(self.findings)} findings" if self.findings else "nothing was changed"
        yield f"{self.delivery}: {self.events} events, {signed}: {verdict}"
        yield from (f"  {finding}" for finding in self.findings)
        yield from (f"  same verdicts, judged again: {trial}" for trial in self.judged_again)
        yield from (f"  head {head}" for head in self.heads)


def audit(
    summary: DeliverySummary,
    record: LedgerRecord,
    found: Sequence[ChainFinding],
    kept: MlflowDeliveries,
    registry: MlflowRegistry,
    *,
    heads: Sequence[str] = (),
    replaying: bool = False,
) -> Audit:
    """Compare everything that can be compared.

    `found` is what the chain itself shows; `heads` are hashes of events, whole, that were noted where MLflow's writers
    cannot write. When `replaying`, the recorded evidence is judged again.

    Raises:
        UsageError: what was noted is no hash.
    """
    if odd := [head for head in heads if not _HASH.fullmatch(head)]:
        raise UsageError(f"--head {odd[0]}: expected 64 hexadecimal digits")
    others = [*_other_findings(summary, record.events, kept, registry), *_ending(summary, record.events)]
    gone = vanished({head: f"head {head[:12]}" for head in heads}, record.entries)
    same, differing = judge_again(summary.id, record.events, kept) if replaying else ((), ())
    return Audit(
        delivery=summary.id,
        events=len(record.events),
        keys=tuple(sorted({entry.link.key for entry in record.entries if entry.link.key})),
        heads=heads_of(record.entries),
        findings=(*found, *gone, *others, *differing),
        judged_again=tuple(same),
    )


def _other_findings(
    summary: DeliverySummary, events: Sequence[Event], kept: MlflowDeliveries, registry: MlflowRegistry
) -> Iterator[ChainFinding]:
    delivery = summary.id
    if not any((event.step, event.kind) == ("delivery", "started") for event in events):
        return
    try:
        plan = plan_of(events)
    except TidegateError as error:
        yield ChainFinding(what="changed", where="the plan", why=str(error))
        return
    with TemporaryDirectory(prefix="tidegate-audit-") as folder:
        yield from _refused("the spec", lambda: _compare_spec(plan, events, delivery, kept, Path(folder)))
        yield from _evidence(events, kept.fetch(delivery, EVIDENCE, Path(folder), transcripts(vouched(events))))
    for tag, says, planned in (
        (VERSION, summary.version, plan.version.version),
        (CHAMPION, summary.champion, plan.champion.version),
    ):
        if says != planned:
            yield ChainFinding(what="changed", where=tag, why=f"says {says}; planned was {planned}")
    yield from _tags(plan, registry)


def _evidence(events: Sequence[Event], files: Sequence[Path]) -> Iterator[ChainFinding]:
    """Transcripts that are others, or less, than what verdicts were told of."""
    told, found = vouched(events), {path.stem: path.read_bytes() for path in files if path.exists()}
    for trial, content in found.items():
        yield from _refused(trial, partial(proven, trial, content, told.get(trial, Vouched())))
    for trial, each in told.items():
        short = partial(refuse_shorter, trial, len(found.get(trial, b"")), each.least)
        yield from _refused(trial, short, what="removed")


def judge_again(
    delivery: str, events: Sequence[Event], kept: MlflowDeliveries
) -> tuple[Sequence[str], Sequence[ChainFinding]]:
    """The trials whose evidence gives the recorded verdicts again, bit for bit, and what differs in the others."""
    same: list[str] = []
    differing: list[ChainFinding] = []
    with TemporaryDirectory(prefix="tidegate-audit-") as folder:
        files = kept.fetch(delivery, EVIDENCE, Path(folder), transcripts(vouched(events)))
        for path in (path for path in files if path.exists()):
            text = StringIO(path.read_text(encoding="utf-8", errors="replace"))
            try:
                found = replay(read(text, file=path.name), file=path.name)
                why = f"judged again, {found[0]}{f' (and {len(found) - 1} more)' if found[1:] else ''}" if found else ""
            except SpecError as error:
                why = f"cannot be judged again: {error.problems[0]}"
            if why:
                differing.append(ChainFinding(what="changed", where=path.stem, why=why))
            else:
                same.append(path.stem)
    return same, differing


def _compare_spec(plan: Plan, events: Sequence[Event], delivery: str, kept: MlflowDeliveries, folder: Path) -> None:
    spec_file = spec_file_of(events)
    if spec_file is None:
        return
    path = bring_spec(kept, delivery, spec_file, folder, plan.resolved.files)
    refuse_other_files(plan.resolved, digest_files(folder / SPEC), spec_file, delivery)
    spec = load_spec(path, Delivery)
    refuse_other_plan(plan, spec, prompts=len(golden_set(spec, path.parent)), delivery=delivery)


def _refused(where: str, compare: Callable[[], object], *, what: str = "changed") -> Iterator[ChainFinding]:
    try:
        compare()
    except TidegateError as error:
        yield ChainFinding(what=what, where=where, why=error.message)


def _tags(plan: Plan, registry: MlflowRegistry) -> Iterator[ChainFinding]:
    for version, name in ((plan.version, plan.on_trial), (plan.champion, plan.in_production)):
        planned = plan.resolved.images.get(name)
        # Of an engine that was changed alone, the version's tag names one of the two.
        if planned is None or (plan.is_engine_change and name == plan.in_production):
            continue
        now = registry.tags(version).get(ENGINE_IMAGE)
        if now != planned:
            why = f"says {now or 'nothing'}; planned was {planned}"
            yield ChainFinding(what="changed", where=f"{ENGINE_IMAGE} of {version.uri}", why=why)


def _ending(summary: DeliverySummary, events: Sequence[Event]) -> Iterator[ChainFinding]:
    """What lists say of the end stands in tags of its own."""
    try:
        result = outcome_of(events, summary.id)
    except NotGenuine as error:
        yield ChainFinding(what="changed", where="the ending", why=error.message)
        return
    if summary.ended is None or (result is None and summary.outcome == "interrupted"):
        return  # one that died is closed by the one who finds it, without an event
    said = str(result.ending) if result else "nothing"
    # MLflow may have less of a long reason.
    if said != summary.outcome or (result and not result.reason.startswith(summary.reason or "nothing")):
        why = f"lists say {summary.outcome}: {summary.reason}; its events say {said}: {result and result.reason}"
        yield ChainFinding(what="changed" if result else "removed", where="the ending", why=why)


def export_chain(entries: Iterable[ChainEntry], file: Path) -> None:
    """Write a chain with its signatures, one event a line."""
    lines = [json.dumps({"body": entry.body, "signature": entry.signature}) + "\n" for entry in entries]
    write_atomically({file: "".join(lines)})
