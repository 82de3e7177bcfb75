"""smoke and offline: what the delivery asks itself, or has commands ask, before any user meets the version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from itertools import count, zip_longest

from gates.analyses.command import AskedArm, CommandGate, Question, judge_answer
from gates.analyses.quality import QualityGate, judge_quality
from gates.answers.golden import GoldenPrompt, ask_golden
from gates.errors import BadAnswer, NotAnswered
from gates.model import AnswerScores, GateOutcome, Verdict
from pipelines.errors import Stopped
from pipelines.events.payloads import VerdictPayload
from pipelines.model import ENDING_OF, Ending, PlanStep
from pipelines.plan.gates import offline_rollback
from pipelines.run.context import AskCommand, Context
from pipelines.run.regions import both_arms, refuse_dead_canary
from pipelines.spec.policy import golden_set
from registry.model import EngineRecord, EventKind
from rollouts.errors import NotPossible
from rollouts.model import EngineSet
from tidegate.core.errors import OutsideError
from tidegate.core.threads import call_in_thread
from tidegate.core.units import format_duration

FIRST_WAIT_SECONDS = 1.0
"""After the first try; twice as long after each further one."""


async def command_verdict(context: Context, step: PlanStep, gate: str, *, rollback: float) -> Verdict:
    """What a command makes of both arms; what it said before this process is not asked again.

    `rollback` is the gate's share of the chance that a version that is no worse is rolled back, where it brings scores.

    Raises:
        NotPossible: an arm has no address, or this process runs no commands.
        Stopped: the canary died meanwhile.
    """
    if (before := await _said_before(context, step, gate)) is not None:
        context.journal.note(step.id, f"{gate} was asked before; its answer stands")
        return before
    if context.commands is None:
        hint = "leave it out of `stages`"
        raise NotPossible(f"this process runs no commands, which gate {gate} needs", hint=hint)
    verdict = await _until_decided(context, step, gate, context.commands, rollback=rollback)
    # First, because of a canary that died any command says something.
    refuse_dead_canary(await context.fleet(step).observe(), context.plan.on_trial)
    return verdict


async def _said_before(context: Context, step: PlanStep, gate: str) -> Verdict | None:
    """A pass of this step, told by a process that died after it: any other answer would have ended the delivery."""
    for event in await context.journal.recorded():
        if event.step == step.id and event.kind == EventKind.VERDICT:
            said = VerdictPayload.of(event)
            if said.gate == gate and said.outcome is GateOutcome.PASS:
                return Verdict(gate=gate, outcome=said.outcome, reason=said.reason, numbers=said.numbers)
    return None


async def _question(context: Context, step: PlanStep, gate: str) -> Question:
    plan = context.plan
    stable, canary = both_arms(await context.fleet(step).observe())
    for arm in (stable, canary):
        if not arm.url:
            hint = f"gate {gate} asks each arm at its address; leave it out of `stages`"
            raise NotPossible(f"{step.region}: the {arm.role} has no address of its own", hint=hint)
    return Question(
        gate=gate,
        delivery=context.journal.delivery,
        stage=str(step.stage),
        region=step.region or "",
        model=plan.name,
        stable=_arm(context, stable, plan.champion.digest, plan.champion_engine),
        canary=_arm(context, canary, plan.version.digest, plan.engine),
    )


def _arm(context: Context, arm: EngineSet, digest: str, record: EngineRecord | None) -> AskedArm:
    """An engine that was not recorded is made as the spec says."""
    settings = record or context.spec.engine
    identity = sha256(f"{digest} {settings.model_dump_json()}".encode()).hexdigest()
    return AskedArm(version=arm.version, url=arm.url, engine=identity)


async def _until_decided(context: Context, step: PlanStep, gate: str, ask: AskCommand, *, rollback: float) -> Verdict:
    """Ask, and ask again where something was not there."""
    settings = context.spec.gates.of(CommandGate)[gate]
    question, failures = await _question(context, step, gate), 0
    end, limit = context.clock.monotonic() + settings.within.total_seconds(), format_duration(settings.within)
    while True:
        context.journal.check()
        try:
            reply = await ask(settings, question, end - context.clock.monotonic())
        except NotAnswered as error:
            _keep(context, step, gate, f"{error.message}\n{error.output}")
            failures += 1
            if not error.again or failures > settings.retries:
                return Verdict(gate=gate, outcome=GateOutcome.ERROR, reason=str(error))
            context.journal.note(step.id, f"{gate}: {error.message}; asking again")
            wait = FIRST_WAIT_SECONDS * 2 ** (failures - 1)
        else:
            _keep(context, step, gate, reply.output)
            return judge_answer(gate, settings, reply.answer, rollback=rollback)
        if wait >= end - context.clock.monotonic():
            return Verdict(gate=gate, outcome=GateOutcome.ERROR, reason=f"no answer within {limit}")
        await context.clock.sleep(wait)


def _keep(context: Context, step: PlanStep, gate: str, output: str) -> None:
    """Add to the file of the gate, and keep it with the delivery."""
    path = context.own / "commands" / f"{step.id}.{gate}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"--- {context.clock.now():%Y-%m-%dT%H:%M:%SZ}\n{output.rstrip()}\n")
    context.journal.attach(path, folder="commands")


@asynccontextmanager
async def canary_is_asked(context: Context, step: PlanStep, gate: str) -> AsyncIterator[None]:
    """Questions to the canary that any version should answer.

    Raises:
        Stopped: it was reached and did not answer as engines do, or it died; `gate` fails.
        OutsideError: it was not reached and its region says that it is ready; or the region is not there either.
    """
    try:
        yield
    except BadAnswer as error:
        # An answer is cut off too where the whole region goes, and then the version is not what failed.
        await context.fleet(step).observe()
        context.journal.verdict(step, Verdict(gate=gate, outcome=GateOutcome.FAIL, reason=error.message))
        raise Stopped(Ending.ROLLED_BACK, f"gate {gate}: {error.message}") from error
    except OutsideError:
        # First, because a canary that died is not there either.
        refuse_dead_canary(await context.fleet(step).observe(), context.plan.on_trial)
        raise


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


async def smoke(context: Context, step: PlanStep) -> None:
    """Three short questions to the canary alone.

    Raises:
        Stopped: on the first wrong answer, and when it fails to answer.
        OutsideError: the canary was not reached, though it is ready.
    """
    # A process of its own has not deployed it, and may not have the files that tell what its tokens should be.
    if not context.engines.folder(context.plan.version).exists():
        await context.prepare(step.id)
    _, canary = both_arms(await context.fleet(step).observe())
    model = context.plan.name
    folder = context.engines.folder(context.plan.version)
    registered = await call_in_thread(context.tokenizer.encode, folder, CONVERSATION)
    async with canary_is_asked(context, step, "answers"):
        # One after the other: asked together they would be one batch.
        _, first = await context.chat.ask(canary.url, model, PROMPT, max_tokens=MAX_TOKENS)
        _, second = await context.chat.ask(canary.url, model, PROMPT, max_tokens=MAX_TOKENS)
    async with canary_is_asked(context, step, "tokenizer"):
        served = await context.chat.tokenize(canary.url, model, CONVERSATION)
    for verdict in (_answers(first), _tokenizer(served, registered), _same_twice(first, second)):
        context.journal.verdict(step, verdict)
        if verdict.outcome is not GateOutcome.PASS:
            raise Stopped(Ending.ROLLED_BACK, f"gate {verdict.gate}: {verdict.reason}")


def _verdict(gate: str, good: bool, reason: str, numbers: Mapping[str, float]) -> Verdict:
    return Verdict(gate=gate, outcome=GateOutcome.PASS if good else GateOutcome.FAIL, reason=reason, numbers=numbers)


def _answers(tokens: Sequence[int]) -> Verdict:
    numbers = {"tokens": float(len(tokens))}
    return _verdict("answers", bool(tokens), f"{len(tokens)} tokens to a first prompt", numbers)


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


def _same_twice(first: Sequence[int], second: Sequence[int]) -> Verdict:
    same = first == second
    reason = f"the same prompt gives {'the same' if same else 'other'} tokens the second time"
    return _verdict("determinism", same, reason, {"tokens": float(len(first))})


SHOWN = 60
"""Of a question that none answers, as many characters."""


async def offline(context: Context, step: PlanStep) -> None:
    """Ask one gate after the other, each once: what comes of it is all the evidence there will be.

    Raises:
        Stopped: unless every gate passes, and when the canary fails to answer what the champion answers.
        OutsideError: an engine was not reached, or none answers a question.
    """
    assert context.spec.offline is not None, f"{step.id} without an offline stage"
    rollback = offline_rollback(context.spec)
    for gate in context.spec.offline.gates:
        if gate in context.spec.gates.of(CommandGate):
            verdict = await command_verdict(context, step, gate, rollback=rollback)
        else:
            verdict = await _quality(context, step, gate)
        context.journal.verdict(step, verdict)
        if verdict.outcome is not GateOutcome.PASS:
            raise Stopped(ENDING_OF[verdict.outcome], f"gate {verdict.gate}: {verdict.reason}")


async def _quality(context: Context, step: PlanStep, gate: str) -> Verdict:
    """Ask, score, judge."""
    settings = context.spec.gates.of(QualityGate)[gate]
    golden = golden_set(context.spec, context.folder)
    stable, canary = both_arms(await context.fleet(step).observe())
    done = count(1)

    async def answer(arm: EngineSet, entry: GoldenPrompt) -> str:
        reply, _ = await context.chat.ask(arm.url, context.plan.name, entry.prompt, max_tokens=entry.max_tokens)
        return reply.text

    async def of_canary(entry: GoldenPrompt) -> str:
        """A question that no version can answer, such as one that is too long, is not this version's fault."""
        async with canary_is_asked(context, step, gate):
            try:
                return await answer(canary, entry)
            except BadAnswer as error:
                try:
                    await answer(stable, entry)
                except BadAnswer:
                    raise OutsideError(
                        f"neither version answers {entry.prompt[:SHOWN]!r}: {error.message}",
                        hint="look at the golden set, and at the engines' logs",
                    ) from error
                raise

    async def counted(arm: EngineSet, entry: GoldenPrompt) -> str:
        text = await (of_canary(entry) if arm is canary else answer(arm, entry))
        context.journal.progress(step, "answers", next(done), 2 * len(golden))
        return text

    # Both at once, so that whatever slows the machine meets both.
    asking = (ask_golden(golden, settings.scorer, partial(counted, arm)) for arm in (stable, canary))
    scores = await asyncio.gather(*asking)
    verdict = judge_quality(settings, AnswerScores(stable=scores[0], canary=scores[1]))
    return verdict.model_copy(update={"gate": gate})
