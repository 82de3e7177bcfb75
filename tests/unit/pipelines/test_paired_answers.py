"""Both arms get every prompt at the same moment, at a steady pace, and what does not come back is counted."""

from __future__ import annotations

import asyncio

import pytest
from fakes.delivery.world import CHALLENGER_URL, CHAMPION_URL
from fakes.services.chat_servers import FakeJudge

from gates.evidence.batch import Dimension
from gates.judge.judge import Judge
from gates.judge.spec import JudgeControl, JudgeGate
from gates.model import EngineReply
from pipelines.run.stages.shadow import PairedProbes
from rollouts.model import EngineSet, Role
from tidegate.testing import FakeChat, FakeClock, answers_500

PROMPTS = ("one?", "two?", "three?")


def arm(role: Role, url: str) -> EngineSet:
    return EngineSet(role=role, version="1", digest="d", url=url, ready=True)


ARMS = (arm(Role.STABLE, CHAMPION_URL), arm(Role.CANARY, CHALLENGER_URL))


Asked = tuple[EngineReply, tuple[int, ...]]


class Chat(FakeChat):
    """Remembers who was asked what."""

    def __init__(self) -> None:
        super().__init__({CHAMPION_URL: lambda p: f"old {p}", CHALLENGER_URL: lambda p: f"new {p} please"})
        self.asked: list[tuple[str, str, int]] = []

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Asked:
        self.asked.append((url, prompt, max_tokens))
        return await super().ask(url, model, prompt, max_tokens=max_tokens)


async def paired(
    chat: FakeChat, *, seconds: float = 2, per_second: float = 2, judge: Judge | None = None
) -> PairedProbes:
    """What came of that many seconds of pairing."""
    clock = FakeClock()
    pairing = PairedProbes(chat, clock, ARMS, model="support-llm", prompts=PROMPTS, max_tokens=8, judge=judge)
    async with pairing.sending(per_second=per_second):
        while clock.elapsed < seconds:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
    return pairing


async def test_both_arms_are_asked_the_same_prompts_in_turn_and_from_the_start_again() -> None:
    chat = Chat()
    await paired(chat)
    assert chat.asked[:8] == [
        (url, prompt, 8) for prompt in (*PROMPTS, PROMPTS[0]) for url in (CHAMPION_URL, CHALLENGER_URL)
    ]


async def test_pairs_keep_which_answer_was_whose() -> None:
    chat = Chat()
    chat.ttft[CHALLENGER_URL] = 0.4
    first = (await paired(chat)).drain().pairs[0]
    assert first.stable
    assert first.canary
    assert (first.stable.output_tokens, first.canary.output_tokens) == (2, 3)
    assert (first.stable.ttft, first.canary.ttft) == (0.1, 0.4)
    assert first.canary.finish_reason == "stop"
    assert first.similarity == pytest.approx(0.4)


async def test_evidence_has_no_word_of_a_prompt_or_an_answer() -> None:
    text = (await paired(Chat())).drain().model_dump_json()
    assert "one" not in text
    assert "please" not in text


async def test_each_pair_is_handed_on_once() -> None:
    pairing = await paired(Chat())
    assert len(pairing.drain().pairs) >= 4
    assert pairing.drain().pairs == ()


async def test_an_arm_that_was_not_reached_makes_no_pair() -> None:
    chat = Chat()
    del chat.scripts[CHALLENGER_URL]
    pairing = await paired(chat)
    assert pairing.drain().pairs == ()
    assert "is not there" in next(pairing.blind()).reason


async def test_an_arm_that_answers_badly_costs_the_answer_and_not_the_pair() -> None:
    chat = Chat()
    chat.scripts[CHALLENGER_URL] = answers_500
    pairs = (await paired(chat)).drain().pairs
    assert len(pairs) >= 4
    assert all(pair.stable and pair.canary is None and pair.similarity is None for pair in pairs)


async def test_a_slow_answer_delays_no_other_pair() -> None:
    class Stuck(Chat):
        async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Asked:
            if prompt == "one?" and url == CHALLENGER_URL:
                await asyncio.Event().wait()
            return await super().ask(url, model, prompt, max_tokens=max_tokens)

    chat = Stuck()
    pairs = (await paired(chat)).drain().pairs
    sent = {prompt for _, prompt, _ in chat.asked}
    assert "two?" in sent
    assert 0 < len(pairs) < len(chat.asked) / 2


async def test_times_between_tokens_and_until_the_last_are_those_of_the_answer() -> None:
    chat = Chat()
    first = (await paired(chat)).drain().pairs[0]
    assert first.stable
    # 10 ms for each of two tokens, of which the second alone has one before it.
    assert (first.stable.e2e, first.stable.itl) == (pytest.approx(0.12), pytest.approx(0.02))


async def test_an_answer_of_one_token_has_no_time_between_tokens() -> None:
    chat = Chat()
    chat.scripts[CHAMPION_URL] = lambda prompt: "yes"
    first = (await paired(chat)).drain().pairs[0]
    assert first.stable
    assert first.stable.itl is None


@pytest.mark.parametrize(("needed", "trusted"), [(2, True), (1000, False)])
async def test_what_a_judge_gave_for_each_dimension_comes_with_its_scores(needed: int, trusted: bool) -> None:
    chat = FakeChat({CHAMPION_URL: lambda prompt: prompt, CHALLENGER_URL: lambda prompt: f"{prompt} please"})
    client = FakeJudge(worth=lambda prompt, answer: 0.1 if prompt not in answer else 0.5 if "please" in answer else 0.9)
    control = JudgeControl(share=1.0, min_asked=needed)
    settings = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="judge", sample=1.0, control=control)
    batch = (await paired(chat, seconds=10, judge=Judge(settings, client, seed=1))).drain()
    assert bool(batch.arms) is trusted
    assert batch.dimensions == {pod.arm: dict.fromkeys(Dimension, pod.scores) for pod in batch.arms}
