"""A gate of kind `command`: asked until there is an answer, or its time is over; what was said is kept."""

from __future__ import annotations

from hashlib import sha256

from gates.analyses.command import AskedArm, CommandGate, Question, judge_answer
from gates.errors import NotAnswered
from gates.model import GateOutcome, Verdict
from pipelines.events.payloads import VerdictPayload
from pipelines.model import PlanStep
from pipelines.run.context import Context
from pipelines.run.regions import both_arms, refuse_dead_canary
from registry.model import EngineRecord, EventKind
from rollouts.errors import NotPossible
from rollouts.model import EngineSet
from tidegate.core.units import format_duration

FIRST_WAIT_SECONDS = 1.0
"""After the first try; twice as long after each further one."""


async def command_verdict(
    context: Context, step: PlanStep, gate: str, settings: CommandGate, *, rollback: float
) -> Verdict:
    """What a command makes of both arms; what it said before this process is not asked again.

    `rollback` is the gate's share of the chance that a version that is no worse is taken back, where it brings scores.

    Raises:
        NotPossible: an arm has no address, or this process runs no commands.
        Stopped: the canary died meanwhile.
    """
    if (before := await _said_before(context, step, gate)) is not None:
        context.journal.note(step.id, f"{gate} was asked before; its answer stands")
        return before
    asked = _Asked(context, step, gate, settings, rollback)
    verdict = await asked.until_decided(await _question(context, step, gate))
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


class _Asked:
    """One gate of one step, asked until it is decided."""

    def __init__(self, context: Context, step: PlanStep, gate: str, settings: CommandGate, rollback: float) -> None:
        if context.commands is None:
            hint = "leave it out of `stages`"
            raise NotPossible(f"this process runs no commands, which gate {gate} needs", hint=hint)
        self._context, self._step, self._gate, self._settings = context, step, gate, settings
        self._rollback = rollback
        self._ask = context.commands
        self._file = context.own / "commands" / f"{step.id}.{gate}.txt"
        self._end = context.clock.monotonic() + settings.within.total_seconds()
        self._failures = 0

    async def until_decided(self, question: Question) -> Verdict:
        """Ask, and ask again after `running`, and where there was no answer."""
        while True:
            self._context.journal.check()
            verdict, wait = await self._once(question)
            if verdict and verdict.outcome is not GateOutcome.RUNNING:
                return verdict
            if wait >= self._left:
                return self._too_late(verdict)
            if verdict:
                self._context.journal.verdict(self._step, verdict)
            await self._context.clock.sleep(wait)

    @property
    def _left(self) -> float:
        return self._end - self._context.clock.monotonic()

    async def _once(self, question: Question) -> tuple[Verdict | None, float]:
        """A verdict, if there is one, and how many seconds later to ask again."""
        try:
            reply = await self._ask(self._settings, question, self._left)
        except NotAnswered as error:
            self._keep(f"{error.message}\n{error.output}")
            self._failures += 1
            if error.again and self._failures <= self._settings.retries:
                self._context.journal.note(self._step.id, f"{self._gate}: {error.message}; asking again")
                return None, FIRST_WAIT_SECONDS * 2 ** (self._failures - 1)
            return Verdict(gate=self._gate, outcome=GateOutcome.ERROR, reason=str(error)), 0.0
        self._keep(reply.output)
        verdict = judge_answer(self._gate, self._settings, reply.answer, rollback=self._rollback)
        return verdict, self._settings.poll.total_seconds()

    def _too_late(self, verdict: Verdict | None) -> Verdict:
        limit = format_duration(self._settings.within)
        if verdict is None:
            return Verdict(gate=self._gate, outcome=GateOutcome.ERROR, reason=f"no answer within {limit}")
        reason = f"still running after {limit}: {verdict.reason}"
        return verdict.model_copy(update={"outcome": GateOutcome.INCONCLUSIVE, "reason": reason})

    def _keep(self, output: str) -> None:
        """Add to the file of the gate, and keep it with the delivery."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"--- {self._context.clock.now():%Y-%m-%dT%H:%M:%SZ}\n{output.rstrip()}\n")
        self._context.journal.attach(self._file, folder="commands")
