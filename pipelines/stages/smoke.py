"""smoke: it answers, it reads prompts as its registered files do, and it says the same thing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest

from gates.model import Outcome, Verdict
from pipelines.blame import canary_is_asked
from pipelines.context import Context, both_arms
from pipelines.errors import Stopped
from pipelines.model import Ending, Step
from pipelines.ports import Answer

PROMPT = "Name three colours of the rainbow."
MAX_TOKENS = 16
"""Enough for two answers to part; few enough for a second."""

CONVERSATION: Sequence[Mapping[str, str]] = (
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Qu'est-ce que c'est? 価格は $1,299.00!"},
    {"role": "assistant", "content": "A price."},
    {"role": "user", "content": "  In which currency?\n"},
)
"""Every role, two scripts, digits, quotes and white space: where templates and tokenizers differ."""


async def smoke(context: Context, step: Step) -> None:
    """Three short questions to the canary alone.

    Raises:
        Stopped: on the first wrong answer, and when it fails to answer.
        OutsideError: the canary was not reached, though it is ready.
    """
    # A process of its own has not deployed it, and may not have the files that tell what its tokens should be.
    if not context.engines.folder(context.plan.version).exists():
        await context.engines.prepare(context.plan.version, partial(context.journal.tell, step.id, "evidence"))
    _, canary = both_arms(await context.fleet(step).observe())
    model = context.plan.name
    folder = context.engines.folder(context.plan.version)
    registered = await asyncio.to_thread(context.tokenizer.encode, folder, CONVERSATION)
    async with canary_is_asked(context, step, "answers"):
        # One after the other: asked together they would be one batch.
        first = await context.chat.ask(canary.url, model, PROMPT, max_tokens=MAX_TOKENS)
        second = await context.chat.ask(canary.url, model, PROMPT, max_tokens=MAX_TOKENS)
    async with canary_is_asked(context, step, "tokenizer"):
        served = await context.chat.tokenize(canary.url, model, CONVERSATION)
    for verdict in (_answers(first), _tokenizer(served, registered), _same_twice(first, second)):
        context.journal.verdict(step, verdict)
        if verdict.outcome is not Outcome.PASS:
            raise Stopped(Ending.ROLLED_BACK, f"gate {verdict.gate}: {verdict.reason}")


def _verdict(gate: str, good: bool, reason: str, numbers: Mapping[str, float]) -> Verdict:
    return Verdict(gate=gate, outcome=Outcome.PASS if good else Outcome.FAIL, reason=reason, numbers=numbers)


def _answers(answer: Answer) -> Verdict:
    count = len(answer.tokens)
    return _verdict("answers", count > 0, f"{count} tokens to a first prompt", {"tokens": float(count)})


def _tokenizer(served: Sequence[int], registered: Sequence[int]) -> Verdict:
    same = list(served) == list(registered)
    reason = f"chat template and tokenizer give the registered {len(registered)} tokens"
    if not same:
        common = zip_longest(served, registered)
        parting = next(index for index, (mine, theirs) in enumerate(common) if mine != theirs)
        reason = (
            f"the engine reads a conversation as {len(served)} tokens, its registered files as {len(registered)}; "
            f"they part at token {parting}"
        )
    return _verdict("tokenizer", same, reason, {"served_tokens": len(served), "registered_tokens": len(registered)})


def _same_twice(first: Answer, second: Answer) -> Verdict:
    same = first.tokens == second.tokens
    reason = f"the same prompt gives {'the same' if same else 'other'} tokens the second time"
    return _verdict("determinism", same, reason, {"tokens": float(len(first.tokens))})
