"""The judge keeps nothing: who asks when makes no difference, and a trial begins where its series do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from gates import trials
from gates.evidence.batch import Batch
from gates.model import ArmKey, GateOutcome
from gates.reports.gate_file import GateFile
from gates.trials import Answer, Judge, Question
from tidegate.core.errors import UsageError
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeClock, FakeEvidence

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 5pp}}\n"
LOOK = timedelta(seconds=10)
ASKED = Question(service="support-llm", stable="6", canary="7", region="eu")
PASS, RUNNING, INCONCLUSIVE, ERROR, FAIL = GateOutcome


class Ground:
    """A judge, and the world that it looks at."""

    def __init__(self, evidence: FakeEvidence | None = None, *, per_second: float = 2, failed: float = 0) -> None:
        self.clock, self.evidence = FakeClock(), evidence or FakeEvidence()
        self.begins = self.clock.now()
        self.evidence.serves("stable", "6")
        self.evidence.serves("canary", "7", since=self.begins, per_second=per_second, failed=failed)
        self.told: list[Answer] = []
        self.judge = self.another()

    def another(self, **settings: object) -> Judge:
        """A second replica, or the same one started again."""
        plan = parse_spec(GATES, GateFile, file="gates.yaml").terms(counted_by="proxy")
        heard = lambda _, answer: self.told.append(answer)  # noqa: E731
        return Judge(plan, LOOK, self.evidence, self.clock, service="support-llm", changed=heard, **settings)  # type: ignore[arg-type]

    def after(self, seconds: float, question: Question = ASKED) -> Answer:
        self.clock.elapsed += seconds
        return self.judge.ask(question)

    def asked_every(self, seconds: float, total: float) -> Answer:
        for _ in range(round(total / seconds)):
            answer = self.after(seconds)
        return answer


def test_a_good_canary_passes_and_a_bad_one_fails_for_good() -> None:
    ground = Ground()
    first, later = ground.after(15), ground.after(3600)
    assert (first.outcome, later.outcome, later.needs) == (RUNNING, PASS, "")
    assert (first.gate, first.gates) == ("errors", {"errors": RUNNING})
    assert first.needs.startswith("evidence 20:1 that it is within the margin; at this rate in about ")
    assert first.evidence["since"] == "2026-01-01T00:00:00Z"
    bad = Ground(failed=0.5)
    assert bad.asked_every(60, 300).outcome is FAIL
    bad.evidence.serves("canary", "7", since=bad.begins + timedelta(minutes=5))
    assert bad.after(3600).outcome is FAIL
    assert bad.judge.ask(ASKED).sentence.startswith("canary failed")
    assert [answer.outcome for answer in bad.told] == [FAIL], "an outcome is told once"


@pytest.mark.parametrize("every", [7.0, 50.0])
def test_who_asks_when_and_whom_makes_no_difference(every: float) -> None:
    one, other = Ground(), Ground()
    asked = one.asked_every(every, 350)
    assert other.after(350) == asked == one.another().ask(ASKED), "nor does a replica that has just started"
    assert one.evidence.windows == 2 * other.evidence.windows
    assert asked.evidence["windows"] == len(other.evidence.windows) == 35


def test_a_trial_begins_with_the_canary_s_first_sample_after_the_last_gap() -> None:
    ground = Ground()
    ground.evidence.serves("canary", "7", since=ground.begins, until=ground.begins + timedelta(minutes=30))
    assert ground.after(1800).evidence["since"] == "2026-01-01T00:00:00Z"
    assert ground.after(1800).evidence["since"] == "2026-01-01T00:00:00Z", "it has gone, and can still be asked about"
    back = ground.clock.now() + timedelta(minutes=5)
    ground.evidence.serves("canary", "7", since=back, per_second=2)
    again = ground.after(360)
    assert (again.evidence["since"], again.evidence["windows"]) == ("2026-01-01T01:05:00Z", 6)
    # Less than ten minutes are none: scrapes fail now and then.
    assert ground.another().ask(ASKED) == again
    given = ASKED.model_copy(update={"since": ground.begins + timedelta(minutes=2)})
    assert ground.after(0, given).evidence["since"] == "2026-01-01T00:02:00Z"


def test_what_is_known_is_not_looked_for_again() -> None:
    ground = Ground()
    ground.after(7200)
    sought = ground.evidence.sought
    assert sought > 10
    ground.after(60)
    assert ground.evidence.sought == sought + 1


def test_a_canary_that_was_always_there_has_no_beginning_that_could_be_found() -> None:
    ground = Ground()
    ground.evidence.serves("canary", "7")
    answer = ground.after(0)
    assert (answer.outcome, answer.sentence) == (ERROR, "canary version 7 in eu has had series for more than 25h")
    assert answer.needs == "say with `since` when the trial began"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"canary": "6"}, "stable and canary: found '6' twice; expected two versions"),
        ({"service": "chat"}, "service: found 'chat'; expected 'support-llm', the metadata.name of the gates"),
    ],
)
def test_what_could_never_be_judged_is_refused(asked: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        Ground().judge.ask(ASKED.model_copy(update=asked))
    assert refused.value.message == problem


def test_the_first_answer_says_which_series_are_missing_and_that_prometheus_is_away() -> None:
    ground = Ground()
    wrong = ground.after(20, ASKED.model_copy(update={"stable": "5"}))
    assert (wrong.outcome, wrong.gate) == (ERROR, "evidence")
    assert wrong.sentence == 'no series of stable version 5 in eu: {role="stable",version="5"}'
    late = ASKED.model_copy(update={"canary": "9"})
    assert ground.after(0, late).sentence == 'no series of canary version 9 in eu: {role="canary",version="9"}'
    ground.evidence.gone = True
    assert ground.after(0).sentence == "Prometheus is not there"
    ground.evidence.gone = False
    ground.evidence.serves("canary", "9", since=ground.clock.now(), per_second=2)
    assert [ground.after(0).outcome, ground.after(15, late).outcome] == [RUNNING, RUNNING]


def test_an_arm_that_is_scraped_and_counts_nothing_passes_nothing() -> None:
    ground = Ground(per_second=0)
    answer = ground.after(600)
    assert (answer.outcome, answer.sentence) == (RUNNING, "no requests of the canary")
    ground.evidence.serves("canary", "7", since=ground.begins, until=ground.begins + timedelta(minutes=10))
    assert ground.another().ask(ASKED).outcome is PASS


def test_when_its_time_is_over_it_is_inconclusive_and_reads_no_more() -> None:
    ground = Ground(per_second=0.1)
    judge = ground.another(within=timedelta(seconds=60))
    for _ in range(3):
        ground.clock.elapsed += 40
        answer = judge.ask(ASKED)
    assert (answer.outcome, answer.evidence["windows"], len(ground.evidence.windows)) == (INCONCLUSIVE, 6, 6)


def test_another_share_of_users_asks_for_another_pass_and_forgets_no_harm() -> None:
    class Moved(FakeEvidence):
        def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
            self.serves("canary", "7", since=ground.begins, per_second=0.5 if since < moved else 1.5)
            return super().batch(stable, canary, since, until)

    ground = Ground(Moved(), per_second=0.5)
    moved = ground.begins + timedelta(hours=1)
    assert ground.after(3600).outcome is PASS
    assert RUNNING in [ground.after(20).outcome for _ in range(9)], "by its own counters"
    assert ground.after(3600).outcome is PASS
    assert ground.another().ask(ASKED) == ground.judge.ask(ASKED)


def test_one_question_reads_for_so_long_and_passes_nothing_that_is_not_read_whole() -> None:
    class Slow(FakeEvidence):
        def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
            ground.clock.elapsed += 1
            return super().batch(stable, canary, since, until)

    ground = Ground(Slow())
    ground.judge = ground.another(ask_seconds=50)
    first = ground.after(1000)
    assert (first.outcome, first.needs) == (RUNNING, "windows that have passed are still read: ask again")
    assert first.gates == {"errors": PASS}, "which may change yet"
    assert [ground.after(0).outcome for _ in range(3)][-1] is PASS


def test_many_who_ask_at_once_read_each_window_once() -> None:
    ground = Ground()
    ground.clock.elapsed += 600
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ground.judge.ask(ASKED), range(40)))
    assert all(answer == answers[0] for answer in answers)
    assert len(ground.evidence.windows) == answers[0].evidence["windows"] == 60


def test_what_was_asked_longest_ago_is_forgotten_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST_TRIALS", 3)
    ground = Ground()
    before = ground.after(120)
    for number in range(3):
        ground.after(0, ASKED.model_copy(update={"canary": f"1{number}"}))
    read = len(ground.evidence.windows)
    assert ground.after(0) == before
    assert len(ground.evidence.windows) == 2 * read


@pytest.mark.parametrize(("given", "labels"), [({"app": "chat", "role": "primary"}, "app=chat,role=primary"), (7, "7")])
def test_an_arm_is_a_version_or_labels(given: object, labels: str) -> None:
    asked = Question.model_validate({"service": "chat", "stable": given, "canary": "other"})
    assert asked.stable == labels
    assert asked.arms[0].labels == (given if isinstance(given, dict) else {})


@pytest.mark.parametrize("given", ['a"}=b', "a=b,c", "=b", {"a b": "c"}])
def test_labels_that_are_none_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="expected a version, or labels"):
        Question.model_validate({"service": "chat", "stable": given, "canary": "other"})


def test_gates_on_queries_of_ones_own_need_no_other_series_once_the_beginning_is_said() -> None:
    text = "apiVersion: tidegate/v1\nkind: Gates\ngates: {pool: {kind: query, query: 'max(pool)', max: 0.8}}\n"
    clock = FakeClock()
    plan = parse_spec(text, GateFile, file="gates.yaml").terms(counted_by="proxy")
    judge = Judge(plan, LOOK, FakeEvidence(), clock)
    clock.elapsed += 60
    said = judge.ask(ASKED.model_copy(update={"since": clock.now() - timedelta(seconds=60)}))
    assert (said.gate, "no series" in said.sentence) == ("pool", False)
    assert judge.ask(ASKED).sentence.startswith("no series of canary version 7")
