"""Both arms get every prompt at the same moment, at a steady pace, and what does not come back is counted."""

from __future__ import annotations

import asyncio

import pytest
from fakes.chat import FakeChat
from fakes.clock import FakeClock
from fakes.world import CHALLENGER_URL, CHAMPION_URL

from gates.spec import LatencyMetric
from pipelines.pairing import Pairing
from pipelines.ports import Answer
from rollouts.model import Arm, Role

PROMPTS = ("one?", "two?", "three?")


def arm(role: Role, url: str) -> Arm:
    return Arm(role=role, version="1", digest="d", url=url, ready=True)


ARMS = (arm(Role.STABLE, CHAMPION_URL), arm(Role.CANARY, CHALLENGER_URL))


class Chat(FakeChat):
    """Remembers who was asked what."""

    def __init__(self) -> None:
        super().__init__({CHAMPION_URL: lambda p: f"old {p}", CHALLENGER_URL: lambda p: f"new {p} please"})
        self.asked: list[tuple[str, str, int]] = []

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Answer:
        self.asked.append((url, prompt, max_tokens))
        return await super().ask(url, model, prompt, max_tokens=max_tokens)


async def paired(chat: FakeChat, *, seconds: float = 2, per_second: float = 2) -> Pairing:
    """What came of that many seconds of pairing."""
    clock = FakeClock()
    pairing = Pairing(chat, clock, ARMS, model="support-llm", prompts=PROMPTS, max_tokens=8)
    task = asyncio.create_task(pairing.run(per_second=per_second))
    while clock.elapsed < seconds and not task.done():
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    stop = task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if not stop and isinstance(outcome, BaseException):
        raise outcome
    return pairing


async def test_both_arms_are_asked_the_same_prompts_in_turn_and_from_the_start_again() -> None:
    chat = Chat()
    await paired(chat)
    assert chat.asked[:8] == [
        (url, prompt, 8) for prompt in (*PROMPTS, PROMPTS[0]) for url in (CHAMPION_URL, CHALLENGER_URL)
    ]


async def test_pairs_keep_which_answer_was_whose() -> None:
    pairs = (await paired(Chat())).pairs
    assert pairs.sent == len(pairs.answered)
    first = pairs.answered[0]
    assert (first.stable.text, first.canary.text) == ("old one?", "new one? please")
    assert (first.stable.output_tokens, first.canary.output_tokens) == (2, 3)
    assert first.canary.finish_reason == "stop"


async def test_an_arm_that_is_gone_costs_the_pair_and_not_the_count() -> None:
    chat = Chat()
    del chat.scripts[CHALLENGER_URL]
    pairing = await paired(chat)
    assert pairing.pairs.sent >= 4
    assert pairing.pairs.answered == ()
    assert pairing.latencies(LatencyMetric.TTFT).canary.count == 0


async def test_a_bug_is_not_taken_for_a_lost_pair() -> None:
    chat = Chat()
    chat.scripts[CHALLENGER_URL] = lambda prompt: str(1 // 0)
    with pytest.raises(ExceptionGroup) as caught:
        await paired(chat)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


async def test_a_slow_answer_delays_no_other_pair() -> None:
    class Stuck(Chat):
        async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Answer:
            if prompt == "one?" and url == CHALLENGER_URL:
                await asyncio.Event().wait()
            return await super().ask(url, model, prompt, max_tokens=max_tokens)

    pairs = (await paired(Stuck())).pairs
    assert "old two?" in [pair.stable.text for pair in pairs.answered]
    assert "old one?" not in [pair.stable.text for pair in pairs.answered]


@pytest.mark.parametrize(
    ("metric", "stable", "canary"),
    [
        (LatencyMetric.TTFT, 0.1, 0.4),
        # 10 ms for each of two and of three tokens.
        (LatencyMetric.E2E, 0.12, 0.43),
        (LatencyMetric.ITL, 0.02, 0.015),
    ],
)
async def test_each_metric_is_a_time_of_the_pairs(metric: LatencyMetric, stable: float, canary: float) -> None:
    chat = Chat()
    chat.ttft[CHALLENGER_URL] = 0.4
    latencies = (await paired(chat)).latencies(metric)
    assert latencies.stable.count == latencies.canary.count > 0
    assert latencies.stable.quantile(0.5) == pytest.approx(stable)
    assert latencies.canary.quantile(0.5) == pytest.approx(canary)


async def test_an_answer_of_one_token_has_a_time_between_tokens_all_the_same() -> None:
    chat = Chat()
    chat.scripts = {CHAMPION_URL: lambda p: "yes", CHALLENGER_URL: lambda p: "yes"}
    assert (await paired(chat)).latencies(LatencyMetric.ITL).stable.quantile(0.5) == pytest.approx(0.01)


async def test_before_the_first_pair_there_is_nothing_to_compare() -> None:
    pairing = Pairing(Chat(), FakeClock(), ARMS, model="m", prompts=PROMPTS, max_tokens=8)
    assert pairing.pairs.sent == 0
    assert pairing.latencies(LatencyMetric.TTFT).stable.count == 0
