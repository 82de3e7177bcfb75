"""Sessions: what is asked often is judged once, what is kept is not lost, what nobody asks is forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from gates.evidence.batch import Batch
from gates.model import ArmKey, GateOutcome
from gates.reports.gate_file import GateFile
from gates.sessions.model import SessionAnswer, SessionKey, SessionLimits, TooManySessions
from gates.sessions.registry import Sessions, SessionTerms
from gates.transcript import BatchLine, read, replay
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.spec import SpecError, parse_spec
from tidegate.testing import FakeClock, FakeEvidence

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 5pp}}\n"
KEY = SessionKey(namespace="serving", name="support-llm", stable="6", canary="7", region="eu")
LOOK = timedelta(seconds=10)


def terms(text: str = GATES, service: str = "") -> SessionTerms:
    return SessionTerms(parse_spec(text, GateFile, file="gates.yaml").terms(counted_by="proxy"), LOOK, service)


class Ground:
    """A server's sessions, and the world that they look at."""

    def __init__(self, folder: Path, **limits: object) -> None:
        self.folder, self.clock, self.evidence = folder, FakeClock(), FakeEvidence()
        self.evidence.serves("stable", "6")
        self.evidence.serves("canary", "7")
        self.limits = SessionLimits.model_validate(limits)
        self.told: list[SessionAnswer] = []
        self.sessions = self.started()

    def started(self, text: str = GATES) -> Sessions:
        return Sessions(
            terms(text, service="support-llm"),
            self.evidence,
            self.folder,
            self.clock,
            limits=self.limits,
            changed=self.told.append,
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    def asked_every(self, seconds: float, total: float) -> SessionAnswer:
        answer = self.sessions.ask(KEY)
        for _ in range(round(total / seconds)):
            self.pass_time(seconds)
            answer = self.sessions.ask(KEY)
        return answer

    def batches(self, key: SessionKey = KEY) -> Sequence[Batch]:
        path = self.folder / f"{key.digest}.jsonl"
        with path.open() as lines:
            return [line.batch for line in read(lines, file=str(path)) if isinstance(line, BatchLine)]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_session_begins_when_it_is_asked_first_and_knows_nothing_then(ground: Ground) -> None:
    answer = ground.sessions.ask(KEY)
    assert (answer.outcome, answer.batches, answer.until) == (GateOutcome.RUNNING, 0, None)
    now = ground.clock.now()
    assert ground.evidence.windows == [(now - LOOK, now)], "one look whether stable has series"


@pytest.mark.parametrize("every", [7.0, 50.0])
def test_however_often_it_is_asked_it_judges_the_same_batches(tmp_path: Path, every: float) -> None:
    """Who asks each second and who asks once in a while get the same verdicts of the same windows."""
    one, other = Ground(tmp_path / "one"), Ground(tmp_path / "other")
    asked, once = one.asked_every(every, 350), other.asked_every(350, 350)
    assert one.batches() == other.batches()
    assert (asked.verdicts, asked.batches) == (once.verdicts, once.batches) == (asked.verdicts, 35)


def test_a_good_canary_passes_and_a_bad_one_fails_for_good(ground: Ground) -> None:
    assert ground.asked_every(60, 900).outcome is GateOutcome.PASS
    bad = KEY.model_copy(update={"canary": "8"})
    ground.evidence.serves("canary", "8", failed=0.5)
    ground.sessions.ask(bad)
    ground.pass_time(600)
    assert ground.sessions.ask(bad).outcome is GateOutcome.FAIL
    ground.evidence.serves("canary", "8")
    ground.pass_time(900)
    answer = ground.sessions.ask(bad)
    assert answer.outcome is GateOutcome.FAIL
    assert answer.reason.startswith("errors: canary failed")


def test_a_session_keeps_the_terms_with_which_it_began(ground: Ground) -> None:
    ground.asked_every(60, 600)
    ground.sessions = ground.started(GATES.replace("5pp", "50pp"))
    assert "allowed +5 pp" in {each.gate: each for each in ground.sessions.ask(KEY).verdicts}["errors"].reason


@pytest.mark.long
def test_the_half_of_a_last_line_is_read_again(ground: Ground, tmp_path: Path) -> None:
    whole = Ground(tmp_path / "whole").asked_every(60, 1200)
    ground.asked_every(60, 600)
    path = ground.folder / f"{KEY.digest}.jsonl"
    text = path.read_text()
    path.write_text(text[: text.rindex('{"kind":"batch"') + 40])
    ground.sessions = ground.started()
    ground.pass_time(600)
    assert ground.sessions.ask(KEY).verdicts == whole.verdicts
    assert [batch.time for batch in ground.batches()] == sorted({batch.time for batch in ground.batches()})


def test_a_file_that_is_not_what_was_written_hurts_its_own_session_alone(ground: Ground) -> None:
    other = KEY.model_copy(update={"canary": "8"})
    ground.evidence.serves("canary", "8")
    ground.sessions.ask(KEY)
    ground.sessions.ask(other)
    (ground.folder / f"{KEY.digest}.jsonl").write_text("no transcript\n")
    ground.sessions = ground.started()
    with pytest.raises(SpecError, match=r"jsonl:1"):
        ground.sessions.ask(KEY)
    assert ground.sessions.ask(other).outcome is GateOutcome.RUNNING


def test_while_prometheus_is_away_nothing_is_judged_and_nothing_is_lost(ground: Ground) -> None:
    ground.asked_every(60, 600)
    ground.evidence.gone = True
    ground.pass_time(600)
    with pytest.raises(OutsideError):
        ground.sessions.ask(KEY)
    ground.evidence.gone = False
    assert ground.sessions.ask(KEY).batches == 120


def test_a_disk_that_takes_nothing_is_told_and_the_window_is_read_again(ground: Ground) -> None:
    ground.asked_every(60, 600)
    path = ground.folder / f"{KEY.digest}.jsonl"
    text = path.read_text()
    path.unlink()
    path.mkdir()
    ground.pass_time(600)
    with pytest.raises(OutsideError, match="check the disk"):
        ground.sessions.ask(KEY)
    path.rmdir()
    path.write_text(text)
    assert ground.sessions.ask(KEY).batches == 120


def test_a_canary_without_series_is_an_error_after_two_windows_until_it_has_some(ground: Ground) -> None:
    late = KEY.model_copy(update={"canary": "9"})
    found = []
    for _ in range(3):
        found.append(ground.sessions.ask(late).outcome)
        ground.pass_time(10)
    answer = ground.sessions.ask(late)
    assert found == [GateOutcome.RUNNING, GateOutcome.RUNNING, GateOutcome.ERROR]
    assert answer.reason == "errors: no requests of the canary: nothing of canary version 9 in eu"
    ground.evidence.serves("canary", "9")
    ground.pass_time(10)
    assert ground.sessions.ask(late).outcome is GateOutcome.PASS
    with (ground.folder / f"{late.digest}.jsonl").open() as lines:
        assert replay(read(lines, file="it")) == []


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"canary": "6"}, "stable and canary: found '6' twice; expected two versions"),
        ({"name": "chat"}, "name: found 'chat'; expected 'support-llm', the metadata.name of the gates"),
        ({"stable": "5"}, "errors: nothing of stable version 5 in eu"),
        (
            {"stable": "5", "canary": "9"},
            "errors: nothing of stable version 5 in eu; nothing of canary version 9 in eu",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_at_the_first_question(
    ground: Ground, asked: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        ground.sessions.ask(KEY.model_copy(update=asked))
    assert (refused.value.message, ground.sessions.count()) == (problem, 0)


def test_when_its_time_is_over_it_is_inconclusive_and_reads_no_more(tmp_path: Path) -> None:
    ground = Ground(tmp_path, within=30)
    nobody = KEY.model_copy(update={"canary": "9"})
    for _ in range(10):
        answer = ground.sessions.ask(nobody)
        ground.pass_time(10)
    assert (answer.outcome, answer.batches) == (GateOutcome.INCONCLUSIVE, 3)
    assert len(ground.evidence.windows) == 1 + 3


def test_another_weight_asks_for_another_pass_and_forgets_no_harm(ground: Ground) -> None:
    assert ground.sessions.ask(KEY, weight="5").outcome is GateOutcome.RUNNING
    ground.pass_time(900)
    assert ground.sessions.ask(KEY, weight="5").outcome is GateOutcome.PASS
    answer = ground.sessions.ask(KEY, weight="25")
    assert (answer.outcome, answer.weight) == (GateOutcome.RUNNING, "25")
    # Who does not say a weight takes it as it is.
    ground.pass_time(900)
    assert ground.sessions.ask(KEY).outcome is GateOutcome.PASS
    ground.sessions = ground.started()
    assert ground.sessions.ask(KEY, weight="25").outcome is GateOutcome.PASS


def test_what_nobody_asked_for_is_forgotten(tmp_path: Path) -> None:
    ground = Ground(tmp_path, expire=3600)
    other = KEY.model_copy(update={"run": "2"})
    ground.sessions.ask(KEY)
    ground.pass_time(3000)
    ground.sessions.ask(other)
    ground.pass_time(1000)
    assert (ground.sessions.sweep(), ground.sessions.count()) == (1, 1)
    assert [answer.key for answer in ground.sessions.standing()] == [other]
    assert ground.sessions.ask(KEY).batches == 0


def test_beyond_the_limit_a_new_session_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    ground = Ground(tmp_path, sessions=2, expire=3600)
    keys = [KEY.model_copy(update={"run": str(number)}) for number in range(3)]
    for key in keys[:2]:
        ground.sessions.ask(key)
    with pytest.raises(TooManySessions):
        ground.sessions.ask(keys[2])
    ground.sessions.ask(keys[1])
    assert ground.sessions.close(keys[0])
    assert not ground.sessions.close(keys[0])
    assert ground.sessions.ask(keys[2]).batches == 0
    # What has expired makes room by itself.
    ground.pass_time(4000)
    assert ground.sessions.ask(keys[0]).batches == 0


def test_one_request_reads_for_so_long_and_the_next_goes_on(tmp_path: Path) -> None:
    ground = Ground(tmp_path, ask_seconds=5)

    class Slow(FakeEvidence):
        def batch(self, stable: ArmKey, canary: ArmKey, since, until) -> Batch:  # type: ignore[no-untyped-def]
            ground.pass_time(1)
            return super().batch(stable, canary, since, until)

    ground.evidence = Slow()
    ground.evidence.serves("stable", "6")
    ground.evidence.serves("canary", "7")
    ground.sessions = ground.started()
    ground.sessions.ask(KEY)
    ground.pass_time(100)
    first = ground.sessions.ask(KEY)
    assert (first.behind, first.batches) == (True, 5)
    assert (ground.sessions.ask(KEY).behind, ground.sessions.ask(KEY).behind) == (True, False)
    assert [batch.time for batch in ground.batches()] == sorted({batch.time for batch in ground.batches()})


def test_many_who_ask_at_once_feed_it_once(ground: Ground) -> None:
    ground.sessions.ask(KEY)
    ground.pass_time(600)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ground.sessions.ask(KEY), range(40)))
    assert len({json.dumps(answer.model_dump(mode="json")) for answer in answers}) == 1
    assert len(ground.evidence.windows) == 1 + 60
