"""Transcripts that another process wrote are held and judged again; a spec keeps the files that it names."""

from __future__ import annotations

import json
from hashlib import sha256
from io import StringIO
from pathlib import Path

import pytest
from fakes.delivery.ledger import FakeLedger
from fakes.delivery.world import Attached, Steps, World, a_spec

from gates.analyses.errors import ErrorsGate
from gates.evidence.batch import Batch
from gates.sequential_test import AnalysisPlan
from gates.transcript import BatchLine, read, replay
from pipelines.authority.audit import judge_again
from pipelines.errors import NotAsPlanned
from pipelines.events.artifacts import (
    RecordedTrial,
    Trials,
    Vouched,
    bring_evidence,
    bring_spec,
    keep_spec,
    proven,
    vouched,
)
from tidegate.core.errors import UsageError
from tidegate.testing import FakeClock

PLACE = "evidence/canary@eu-west-1.jsonl"


async def a_transcript(folder: Path) -> Path:
    """Of a canary that two processes watched, at two weights."""
    world = World(folder)
    await Steps(world, folder).until("canary@eu-west-1/50")
    path = folder / "transcript.jsonl"
    path.write_bytes(world.ledger.files[PLACE])
    return path


async def test_a_trial_that_goes_on_is_the_trial_that_was(tmp_path: Path) -> None:
    path = await a_transcript(tmp_path)
    lines = list(read(path.read_text().splitlines(keepends=True), file="t"))
    assert replay(lines)[1] == []
    trial = RecordedTrial.continued(path)
    assert not trial.is_new
    verdicts = trial.verdicts(deadline_passed=False)
    assert tuple(verdicts) == lines[-1].verdicts  # type: ignore[union-attr]


def test_a_clock_that_is_set_back_ends_nothing(tmp_path: Path) -> None:
    trial = RecordedTrial.begun(AnalysisPlan(errors=ErrorsGate()), tmp_path / "canary.jsonl")
    for time in (100.0, 40.0, 41.0):
        trial.take(Batch(time=time))
    lines = list(read(StringIO(trial.path.read_text()), file="t"))
    assert [line.batch.time for line in lines if isinstance(line, BatchLine)] == [100, 100.000001, 100.000002]


async def test_a_line_that_a_crash_cut_short_is_left_out_before_the_next_is_written(tmp_path: Path) -> None:
    path = await a_transcript(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + '{"kind":"batch","step":"é'.encode()[:-1])
    RecordedTrial.continued(path).begin("canary@eu-west-1/50")
    assert path.read_bytes() == whole + b'{"kind":"restart","step":"canary@eu-west-1/50"}\n'


@pytest.mark.parametrize(
    ("here", "kept", "left"),
    [
        (None, b"1\n2\n", b"1\n2\n"),
        (b"1\n2\n3\n", b"1\n2\n", b"1\n2\n3\n"),  # this machine had not kept its last line
        (b"1\n", b"1\n2\n", b"1\n2\n"),  # another machine went on
        (b"1\nother\nthird\n", b"1\n2\n", b"1\n2\n"),  # another machine went another way, and kept it
    ],
)
def test_the_transcript_that_goes_further_on_the_kept_way_stays(
    tmp_path: Path, here: bytes | None, kept: bytes, left: bytes
) -> None:
    path = tmp_path / PLACE
    if here is not None:
        path.parent.mkdir()
        path.write_bytes(here)
    bring_evidence(Attached({PLACE: kept}), "1", tmp_path, told_of(kept))
    assert path.read_bytes() == left
    assert [each.name for each in tmp_path.iterdir()] == ["evidence"]


def told_of(*states: bytes) -> dict[str, Vouched]:
    """What a ledger says in which a verdict was told of each of these states of the transcript."""
    written = tuple((len(state), sha256(state).hexdigest()) for state in states)
    return {"canary@eu-west-1": Vouched(states=written)}


def test_evidence_that_was_changed_since_its_verdicts_is_refused(tmp_path: Path) -> None:
    forged = Attached({PLACE: b"lax terms\n2\n3\n"})
    with pytest.raises(NotAsPlanned, match="the evidence of canary@eu-west-1 was changed after its verdicts"):
        bring_evidence(forged, "1", tmp_path, told_of(b"terms\n", b"terms\n2\n"))


async def test_evidence_that_was_cut_off_after_its_step_was_done_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    await Steps(world, tmp_path).until("canary@eu-west-1/50")
    events, kept = world.ledger.events, world.ledger.files
    told = vouched(events)
    assert [trial for trial, each in told.items() if each.least > len(kept[f"evidence/{trial}.jsonl"])] == []
    bring_evidence(Attached(kept), "1", tmp_path / "whole", told)
    cut = kept[PLACE][: told["canary@eu-west-1"].states[0][0]]
    for left in (kept | {PLACE: cut}, {place: content for place, content in kept.items() if place != PLACE}):
        with pytest.raises(NotAsPlanned, match="the evidence of canary@eu-west-1 was cut off after its verdicts"):
            bring_evidence(Attached(left), "1", tmp_path / str(len(left)), told)
    # What was written on this machine goes further than what was kept.
    bring_evidence(Attached(kept | {PLACE: cut}), "1", tmp_path / "whole", told)


@pytest.mark.parametrize(("told", "left"), [((b"1\n", b"1\n2\n"), b"1\n2\n"), ((b"1\n" * 9,), None), ((), None)])
def test_evidence_that_no_verdict_was_told_of_is_left_out(
    tmp_path: Path, told: tuple[bytes, ...], left: bytes | None
) -> None:
    bring_evidence(Attached({PLACE: b"1\n2\nforged\n"}), "1", tmp_path, told_of(*told))
    path = tmp_path / PLACE
    assert (path.read_bytes() if path.exists() else None) == left


async def test_a_step_that_was_killed_before_it_kept_what_it_wrote_and_was_done_elsewhere_owes_nothing(
    tmp_path: Path,
) -> None:
    world, step = World(tmp_path), "canary@eu-west-1/50"
    await Steps(world, tmp_path).until(step)
    kept, events = world.ledger.files, list(world.ledger.events)
    verdict = next(each for each in reversed(events) if each.step == step and each.kind == "verdict")
    # The first try told of more than it kept; the second one began again without that.
    lost = verdict.data | {"transcripts": {"canary@eu-west-1": [10**6, "0" * 64]}}
    first = [next(each for each in events if each.step == step), verdict.model_copy(update={"data": lost})]
    at = events.index(first[0])
    bring_evidence(Attached(kept), "1", tmp_path / "here", vouched([*events[:at], *first, *events[at:]]))


async def test_each_verdict_in_the_ledger_names_the_transcript_that_it_was_told_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    await Steps(world, tmp_path).until("canary@eu-west-1/50")
    told = vouched(world.ledger.events)
    assert sorted(told) == ["canary@eu-west-1", "shadow@eu-west-1"]
    kept = world.ledger.files[PLACE]
    assert proven("canary@eu-west-1", kept, told["canary@eu-west-1"]) == len(kept)


async def test_a_trial_with_other_terms_than_the_spec_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    RecordedTrial.begun(AnalysisPlan(errors=ErrorsGate(max_increase=0.99)), path)
    trials = Trials(tmp_path, FakeLedger(FakeClock()))
    with pytest.raises(NotAsPlanned, match="was judged by other terms than those of the spec"):
        trials.open("canary@eu-west-1", AnalysisPlan(errors=ErrorsGate(max_increase=0.005)), "canary@eu-west-1/50")


def test_files_lie_side_by_side_as_they_did(tmp_path: Path) -> None:
    (tmp_path / "a" / "specs").mkdir(parents=True)
    (tmp_path / "a" / "data").mkdir()
    (tmp_path / "a" / "specs" / "delivery.yaml").write_text("the spec")
    (tmp_path / "a" / "data" / "golden.jsonl").write_text("the questions")
    spec = a_spec(offline="  - offline: {dataset: ../data/golden.jsonl}")
    ledger = FakeLedger(FakeClock())
    spec_file = keep_spec(ledger, tmp_path / "a" / "specs" / "delivery.yaml", spec)
    assert (spec_file, sorted(ledger.files)) == (
        "specs/delivery.yaml", ["spec/data/golden.jsonl", "spec/specs/delivery.yaml"],
    )  # fmt: skip
    files = "data/golden.jsonl", "specs/delivery.yaml"
    path = bring_spec(Attached(ledger.files), "1", spec_file, tmp_path / "b", files)
    assert path.read_text() == "the spec"
    assert (path.parent / "../data/golden.jsonl").read_text() == "the questions"


def test_of_what_others_put_next_to_the_files_of_a_delivery_nothing_is_brought(tmp_path: Path) -> None:
    kept = Attached({"spec/delivery.yaml": b"the spec", "spec/huge.bin": b"nobody knows how much"})
    with pytest.raises(NotAsPlanned, match=r"spec/huge.bin is not among them"):
        bring_spec(kept, "1", "delivery.yaml", tmp_path, ("delivery.yaml",))
    assert not (tmp_path / "spec" / "huge.bin").exists()


def test_what_other_machines_do_not_have_is_refused(tmp_path: Path) -> None:
    spec = a_spec(offline="  - offline: {dataset: /data/golden.jsonl}")
    ledger = FakeLedger(FakeClock())
    with pytest.raises(UsageError, match=r"the spec names /data/golden.jsonl, which other machines do not have"):
        keep_spec(ledger, tmp_path / "delivery.yaml", spec)
    with pytest.raises(UsageError, match="the spec of delivery 1 was not kept"):
        bring_spec(Attached(ledger.files), "1", "delivery.yaml", tmp_path, ("delivery.yaml",))


TRIAL = "canary@eu-west-1"


def judged(world: World) -> tuple[list[str], list[str]]:
    same, differing = judge_again(world.ledger.delivery, world.ledger.recorded(), Attached(world.ledger.files))
    return list(same), [str(each) for each in differing]


async def test_what_differs_from_the_record_is_named(tmp_path: Path) -> None:
    """Of a canary that two processes watched, at two weights; a file that no verdict names is not read."""
    world = World(tmp_path)
    await Steps(world, tmp_path).until(f"{TRIAL}/50")
    world.ledger.files["evidence/another.jsonl"] = b"{}"
    same, differing = judged(world)
    assert TRIAL in same and "another" not in same
    assert differing == []

    lines = world.ledger.files[PLACE].decode().splitlines()
    said = json.loads(lines[-1])
    said["verdicts"][0]["outcome"] = 4
    world.ledger.files[PLACE] = "\n".join([*lines[:-1], json.dumps(said), ""]).encode()
    same, (found,) = judged(world)
    assert TRIAL not in same
    place = f"changed: {TRIAL}: judged again, line {len(lines)}: {TRIAL}/50: gate latency: outcome"
    assert found == f"{place}: recorded fail, now pass"

    for text, problem in (
        ("", "found no terms; expected the terms as the first line"),
        ('{"time": 1}\n', "found an object without the key kind; expected a line that tidegate wrote"),
    ):
        world.ledger.files[PLACE] = text.encode()
        assert judged(world)[1] == [f"changed: {TRIAL}: cannot be judged again: {TRIAL}.jsonl:1: {problem}"]

    del world.ledger.files[PLACE]
    same, differing = judged(world)
    assert TRIAL not in same and differing == []
