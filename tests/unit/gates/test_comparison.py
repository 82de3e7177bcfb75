"""A comparison: pairs in, verdicts out, the same each time."""

from __future__ import annotations

from gates.analyses.agreement import AgreementGate
from gates.answers.golden import GoldenPrompt
from gates.comparison import AnsweredPair, EndpointComparison, comparison_plan
from gates.judge.spec import JudgeGate
from gates.model import ChatAnswer, GateOutcome
from gates.reports.gate_file import GateFile
from gates.spec import Gates
from tidegate.core.spec import parse_spec

GOLDEN = [GoldenPrompt(prompt=f"What is {number}?", expected=f"number {number}") for number in range(40)]


def reply(text: str, *, ttft: float = 0.2) -> ChatAnswer:
    return ChatAnswer(text=text, finish_reason="stop", output_tokens=4, ttft_seconds=ttft)


def pair(number: int, stable: ChatAnswer | None, canary: ChatAnswer | None) -> AnsweredPair:
    return AnsweredPair(time=1000.0 + number, prompt=GOLDEN[number % len(GOLDEN)].prompt, stable=stable, canary=canary)


def compared(canary: str, *, ttft: float = 0.2, most: int = 400) -> EndpointComparison:
    """`canary` is a form for the number that is asked about."""
    comparison = EndpointComparison(comparison_plan("two", None), GOLDEN)
    for number in range(most):
        asked = number % len(GOLDEN)
        comparison.take(pair(number, reply(f"It is number {asked}"), reply(canary.format(asked), ttft=ttft)))
        if comparison.decided:
            break
    return comparison


def outcomes(comparison: EndpointComparison) -> dict[str, GateOutcome]:
    return {verdict.gate: verdict.outcome for verdict in comparison.verdicts(deadline_passed=True)}


def test_wrong_answers_fail_quality_and_a_slow_endpoint_latency() -> None:
    wrong = compared("I do not know")
    assert outcomes(wrong)["quality"] is GateOutcome.FAIL
    slow = compared("It is number {}", ttft=0.4)
    assert (outcomes(slow)["latency"], len(slow.times) < 40) == (GateOutcome.FAIL, True)


def test_answers_that_do_not_come_are_errors_of_the_canary_and_no_score() -> None:
    comparison = EndpointComparison(comparison_plan("two", None), GOLDEN)
    for number in range(60):
        comparison.take(pair(number, reply(f"number {number % len(GOLDEN)}"), None))
    found = outcomes(comparison)
    assert (found["errors"], found["quality"]) == (GateOutcome.FAIL, GateOutcome.INCONCLUSIVE)


def test_it_ends_when_no_open_gate_can_change() -> None:
    """Quality is settled once the set is asked whole, and a judge is asked once about each prompt."""
    wanted = Gates.model_validate({"quality": {}, "judge": {"endpoint": "http://127.0.0.1:9/v1", "model": "big"}})
    plan = comparison_plan("two", wanted)
    assert plan.judge == wanted.only(JudgeGate)
    comparison = EndpointComparison(plan, GOLDEN)
    for number in range(len(GOLDEN)):
        assert not comparison.decided
        comparison.take(pair(number, text := reply(f"number {number}"), text if number else None))
    assert comparison.decided
    assert set(outcomes(comparison).values()) == {GateOutcome.INCONCLUSIVE}, "one prompt has no answer of the canary"
    comparison.take(pair(len(GOLDEN), text := reply("number 0"), text))
    assert outcomes(comparison)["quality"] is GateOutcome.PASS


def test_prompts_whose_scores_differ_are_named_worst_first() -> None:
    comparison = EndpointComparison(comparison_plan("two", None), GOLDEN)
    for number in range(len(GOLDEN)):
        stable = "none" if number == 7 else f"number {number}"
        comparison.take(pair(number, reply(stable), reply(f"number {number if number < 10 else 99}\n" * 100)))
    first, *_ = found = comparison.differing
    assert (len(found), first.prompt, first.expected, first.drop) == (20, "What is 10?", "number 10", 1.0)
    assert first.canary == "number 99 " * 20
    assert str(first).startswith(
        "0.00 instead of 1.00  What is 10?: expected number 10; stable number 10; canary number 99 number 99 "
    )
    assert str(first).endswith("...")


GATES = """apiVersion: tidegate/v1
kind: Gates
metadata: {name: mine}
gates:
  budget: {rollback: 2%}
  agreement: {min_similarity: 0.9}
  judge: {max_drop: 0.1}
"""


def test_a_file_of_gates_says_what_is_asked_and_what_nobody_here_can_answer() -> None:
    plan = comparison_plan("mine", parse_spec(GATES, GateFile, file="gates.yaml").gates)
    assert plan.gates == ("quality", "agreement")
    assert plan.pairs.settings["agreement"] == AgreementGate(min_similarity=0.9)
    assert plan.not_asked == ("judge",)
    assert plan.pairs.rollback == 0.02
