"""`gate check --session`: one test that many calls carry on, and a file that no other test can be taken for."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gates.evidence.batch import Batch
from gates.model import ArmKey, GateOutcome
from gates.reports.check_report import CheckReport
from gates.reports.gate_file import GateFile
from gates.sessions.continued import continued
from gates.transcript import BatchLine, read, replay
from tidegate.cli import main
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError, parse_spec
from tidegate.testing import FakeClock, FakeEvidence

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 5pp}}\n"
LOOK = timedelta(seconds=10)


def arm(role: str, version: str, region: str = "eu") -> ArmKey:
    return ArmKey.model_validate({"region": region, "role": role, "version": version})


class Calls:
    """A state file, and the world that calls look at."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.file, self.clock, self.evidence = folder / "canary-7.jsonl", FakeClock(), FakeEvidence()
        self.evidence.serves("stable", "6")
        self.evidence.serves("canary", "7")

    def call(
        self,
        gates: str = GATES,
        *,
        look: timedelta = LOOK,
        canary: ArmKey | None = None,
        since: timedelta = timedelta(0),
        within: timedelta | None = None,
    ) -> CheckReport:
        terms = parse_spec(gates, GateFile, file="gates.yaml").terms(counted_by="proxy")
        arms = (arm("stable", "6"), canary or arm("canary", "7"))
        return continued(
            "gates",
            terms,
            arms,
            self.evidence,
            file=self.file,
            clock=self.clock,
            look=look,
            since=since,
            within=within,
        )

    def called_every(self, seconds: float, total: float, **asked: timedelta) -> CheckReport:
        report = self.call(**asked)
        for _ in range(round(total / seconds)):
            self.clock.elapsed += seconds
            report = self.call(**asked)
        return report

    def batches(self) -> Sequence[Batch]:
        with self.file.open() as lines:
            return [line.batch for line in read(lines, file=str(self.file)) if isinstance(line, BatchLine)]


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


@pytest.mark.parametrize("every", [7.0, 70.0])
def test_however_often_it_is_called_it_judges_the_same_batches(tmp_path: Path, every: float) -> None:
    often, once = Calls(tmp_path / "often"), Calls(tmp_path / "once")
    assert often.called_every(every, 140) == once.called_every(140, 140)
    assert often.batches() == once.batches()
    assert len(often.batches()) == 14
    for each in (often, once):
        with each.file.open() as lines:
            assert replay(read(lines, file=str(each.file))) == []


def test_a_second_call_in_the_same_window_changes_nothing(calls: Calls) -> None:
    first = calls.called_every(60, 120)
    kept, windows = calls.file.read_bytes(), len(calls.evidence.windows)
    calls.clock.elapsed += 3
    assert [calls.call() for _ in range(2)] == [first] * 2
    assert calls.file.read_bytes() == kept
    assert len(calls.evidence.windows) == windows


def test_the_first_call_begins_in_the_past_and_later_ones_go_on(calls: Calls) -> None:
    calls.call(since=timedelta(minutes=5))
    assert len(calls.evidence.windows) == 30
    calls.clock.elapsed += 60
    calls.call(since=timedelta(minutes=30))
    assert len(calls.evidence.windows) == 36


def test_a_fail_is_final(calls: Calls) -> None:
    calls.evidence.serves("canary", "7", failed=0.5)
    assert calls.called_every(60, 120).outcome is GateOutcome.FAIL
    calls.evidence.serves("canary", "7")
    assert calls.called_every(300, 600).outcome is GateOutcome.FAIL


def test_without_a_verdict_in_time_it_is_inconclusive_and_no_more_is_read(calls: Calls) -> None:
    within = timedelta(minutes=1)
    calls.evidence.serves("canary", "7", per_second=0.1)
    assert calls.call(within=within).outcome is GateOutcome.RUNNING
    assert calls.called_every(30, 90, within=within).outcome is GateOutcome.INCONCLUSIVE
    assert calls.called_every(60, 300, within=within).outcome is GateOutcome.INCONCLUSIVE
    assert len(calls.evidence.windows) == 6


@pytest.mark.parametrize(
    ("another", "told"),
    [
        ({"gates": GATES.replace("5pp", "9pp")}, "it was begun with other gates"),
        ({"canary": arm("canary", "8")}, "it is of canary 7 in eu, not of 8 in eu"),
        ({"canary": arm("canary", "7", "us")}, "it is of canary 7 in eu, not of 7 in us"),
        ({"look": timedelta(seconds=30)}, "it was begun with windows of 10s"),
        ({"within": timedelta(hours=1)}, "it was begun with no --within"),
    ],
)
def test_what_was_begun_otherwise_is_refused_and_left_as_it_is(
    calls: Calls, another: dict[str, object], told: str
) -> None:
    calls.called_every(30, 60)
    kept = calls.file.read_bytes()
    with pytest.raises(UsageError) as caught:
        calls.call(**another)  # type: ignore[arg-type]
    assert caught.value.message == f"--session {calls.file}: {told}"
    assert calls.file.read_bytes() == kept


def test_a_file_that_another_call_has_is_refused(calls: Calls) -> None:
    calls.call()
    with calls.file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another `gate check` uses it"):
            calls.call()


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("content", ["hello", "a: 1\nb: 2", '{"kind":"batch"}', "\0\1", GATES.strip()])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(calls: Calls, content: str, end: str) -> None:
    calls.file.write_text(content + end)
    with pytest.raises(SpecError) as caught:
        calls.call()
    assert len(str(caught.value).splitlines()) == 1
    assert calls.file.read_text() == content + end


def test_the_transcript_of_a_delivery_is_refused(calls: Calls) -> None:
    calls.called_every(30, 60)
    lines = calls.file.read_text().splitlines(keepends=True)
    calls.file.write_text("".join(line for line in lines if '"kind":"opened"' not in line))
    with pytest.raises(UsageError, match="a transcript that no `gate check` has begun"):
        calls.call()


def test_a_line_in_the_middle_that_was_changed_is_named(calls: Calls) -> None:
    calls.called_every(30, 60)
    lines = calls.file.read_text().splitlines(keepends=True)
    calls.file.write_text("".join([*lines[:3], "{}\n", *lines[4:]]))
    with pytest.raises(SpecError, match=r"canary-7.jsonl:4"):
        calls.call()


def test_options_that_need_a_state_or_a_prometheus_say_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gates = tmp_path / "gates.yaml"
    gates.write_text(GATES)
    evidence = ["a.jsonl", "--session", "s.jsonl"]
    asked = ["--prometheus", "http://127.0.0.1:9", "--region", "eu", "--stable", "6", "--canary", "7"]
    for options, told in (
        (evidence, "--session is of no use with EVIDENCE"),
        ([*asked, "--within", "1h"], "--within is"),
    ):
        assert main(["gate", "check", str(gates), *options]) == 2
        assert told in capsys.readouterr().err
    # Begun, though Prometheus was not there: the next call goes on from the same moment.
    state = tmp_path / "kept" / "s.jsonl"
    assert main(["gate", "check", str(gates), *asked, "--session", str(state)]) == 4
    assert "Prometheus at http://127.0.0.1:9 does not answer" in capsys.readouterr().err
    begun = state.read_text()
    assert main(["gate", "check", str(gates), *asked, "--session", str(state)]) == 4
    assert state.read_text() == begun
    assert replay(read(begun.splitlines(keepends=True), file=str(state))) == []
