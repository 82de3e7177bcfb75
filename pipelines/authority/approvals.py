"""What people are asked, of what their answers must speak, who may give one, and which freeze holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime

from pipelines.events.payloads import Waiting
from pipelines.events.state import before, done_steps
from pipelines.model import Plan, PlanStep, StageName
from pipelines.spec.approvals import NAMES, ApprovalSpec, FreezeSpec, ProvenBy, ResumeSpec, WhoMay, asked_before
from pipelines.spec.delivery import Delivery
from pipelines.statements import Person, Statement, utc
from registry.model import Event
from tidegate.core.errors import Refused, UsageError
from tidegate.core.model import Value

FROZEN = frozenset({StageName.DEPLOY, StageName.SHADOW, StageName.CANARY, StageName.PROMOTE})
"""What a freeze holds: whatever changes a region. A bake goes on, since it only looks."""
FREEZE, REQUEST, RESUME = "freeze", "request", "resume"
"""What is asked besides approvals: to go on though a freeze holds, who opened the delivery, who carries it on."""
SKEW = timedelta(minutes=1)
"""By how much the clocks of people and of deliveries may differ."""
WORDS = {"approved": "approve", "refused": "refuse", "requested": "request", "resumed": "resume"}
"""What a statement must say, by the kind of the event that carries it."""


class Rule(Value):
    """Who may say yes, and how many of them it takes."""

    by: WhoMay | None
    """None where nobody may but the one who asked for the delivery."""
    not_the_requester: bool = False
    or_the_requester: bool = False
    """Anyone who asked for the delivery may in any case."""

    @property
    def count(self) -> int:
        """How many people."""
        return self.by.count if isinstance(self.by, ProvenBy) else 1

    def __str__(self) -> str:
        who = "anybody who gives a name" if self.by == NAMES else str(self.by or "the one who asked for the delivery")
        return f"{who}, not the one who asked for the delivery" if self.not_the_requester else who

    def objection(self, person: Person, requester: Person | None, *, approves: bool = True) -> str | None:
        """Why somebody's word does not count; None when it does. A refusal counts from the one who may approve."""
        own, found = person.is_same(requester), None
        if self.by == NAMES or (self.or_the_requester and own):
            return None
        if not person.proven:
            found = "a name alone is not enough here"
        elif not isinstance(self.by, ProvenBy):
            found = f"{person.identity} is not known to have asked for the delivery"
        elif self.by.groups and not person.groups & set(self.by.groups):
            found = f"{person.identity} is not of {' or '.join(self.by.groups)}"
        elif not self.by.groups and not person.listed:
            found = f"{person.identity} is of no group of trust.yaml"
        elif self.not_the_requester and approves and requester is None:
            found = "it is not proven who asked for the delivery, so that nobody is known to be another person"
        elif self.not_the_requester and approves and own:
            found = "who asked for the delivery does not count"
        return found


class Freeze(Value):
    """A freeze that holds now."""

    since: datetime
    until: datetime
    reason: str
    rule: Rule
    """Who may let a delivery go on all the same."""

    def __str__(self) -> str:
        return f"until {self.until:%F %H:%M %Z}: frozen: {self.reason}"


class Question(Value):
    """What is asked, of whom, and what an answer to it must name."""

    name: str
    """A step's id, `wave@2`, `freeze`, `request` or `resume`."""
    rules: tuple[Rule, ...] = ()
    """All of them must be met; none where it is only asked who somebody is."""
    delivery: str
    plan: str
    evidence: str
    since: AwareDatetime | None = None
    """When it was asked; what was said before that was said of something else. None counts whatever was said."""
    freeze: Freeze | None = None
    """The one that is to be lifted; who lifts it lifts no other."""

    @property
    def names(self) -> bool:
        """Whether a name is enough for all of it."""
        return all(rule.by == NAMES for rule in self.rules)

    @property
    def asked_of(self) -> str:
        """Who is asked, in words."""
        return " and ".join(dict.fromkeys(map(str, self.rules)))

    def misses(self, statement: Statement, event: Event) -> str | None:
        """Why a statement, as an event carries it, is not an answer to this; None when it is."""
        expected = (
            ("delivery", statement.delivery, self.delivery),
            ("question", statement.question, self.name),
            ("answer", statement.says, WORDS[event.kind]),
            ("plan", statement.plan, self.plan),
            ("evidence", statement.evidence, self.evidence),
        )
        for what, found, wanted in expected:
            if found != wanted:
                return f"it was signed for another {what}"
        if self.since is not None and statement.at < self.since - SKEW:
            return f"it was signed at {utc(statement.at)}, before it was asked"
        if statement.at > event.at + SKEW:
            return f"it was signed for {utc(statement.at)}, which was still to come"
        return None


def approval(spec: Delivery, plan: Plan, delivery: str, events: Sequence[Event], asked: str) -> Question:
    """Whether the steps that wait for it may begin, on every verdict in their region and in all waves before."""
    first = next(step for step in plan.steps if asked in step.approvals)
    earlier = {step.id for step in before(plan, first)}
    evidence = _digest([_content(each) for each in events if each.kind == "verdict" and each.step in earlier])
    rules = tuple(
        Rule(by=each.by, not_the_requester=each.not_the_requester)
        for each in _entries(spec.approvals, asked, plan.steps)
    )
    question = Question(name=asked, rules=rules, delivery=delivery, plan=plan_digest(events), evidence=evidence)
    return question if question.names else question.model_copy(update={"since": asked_at(events, question)})


def lifting(spec: Delivery, delivery: str, events: Sequence[Event], now: datetime) -> Question | None:
    """Whether the delivery may go on though a freeze holds; None when none does."""
    if (holding := frozen(spec.freeze, now)) is None:
        return None
    return Question(
        name=FREEZE,
        rules=(holding.rule,),
        delivery=delivery,
        plan=plan_digest(events),
        evidence=_digest([holding.until.astimezone(UTC).isoformat(), holding.reason]),
        since=holding.since,
        freeze=holding,
    )


def request(delivery: str, events: Sequence[Event]) -> Question:
    """Who asks for the delivery."""
    digest = plan_digest(events)
    return Question(name=REQUEST, delivery=delivery, plan=digest, evidence=digest)


def resumption(spec: ResumeSpec | None, delivery: str, events: Sequence[Event]) -> Question:
    """Who may carry the delivery on, by all that has happened so far; without rules it is left to everybody."""
    left_to_all = spec is None and not any((each.step, each.kind) == ("delivery", "requested") for each in events)
    rules = () if left_to_all else (Rule(by=spec and spec.by, or_the_requester=True),)
    evidence = _digest([_content(event) for event in events])
    return Question(name=RESUME, rules=rules, delivery=delivery, plan=plan_digest(events), evidence=evidence)


def plan_digest(events: Iterable[Event]) -> str:
    """Of the plan as the delivery was opened with it, versions and files' digests included."""
    opened = [event for event in events if (event.step, event.kind) == ("delivery", "started")]
    return _digest([dict(opened[0].data) if opened else None])


def _content(event: Event) -> Sequence[object]:
    return event.at.astimezone(UTC).isoformat(), event.step, event.kind, event.message, dict(event.data)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def asked_at(events: Iterable[Event], question: Question) -> datetime | None:
    """When that was first asked with this evidence, perhaps by a process before this one."""
    evidence = None if question.names else question.evidence
    waiting = ((event.at, Waiting.of(event)) for event in events if event.kind == "waiting")
    return next((at for at, said in waiting if (said.approval, said.evidence) == (question.name, evidence)), None)


def answering(delivery: str, asked: str, *, names: bool) -> str:
    """The command by which a person approves; `names` is whether it is enough to give one."""
    return f"`tidegate approve {delivery} {asked} {'--by NAME' if names else '--identity ssh:FILE'}`"


def patience(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[PlanStep]) -> timedelta:
    """How long to wait for that answer: of several entries that ask the same, the longest."""
    return max(each.within for each in _entries(approvals, asked, steps))


def _entries(approvals: Sequence[ApprovalSpec], asked: str, steps: Sequence[PlanStep]) -> Sequence[ApprovalSpec]:
    return [each for each in approvals if any(asked_before(each, step, steps) == asked for step in steps)]


def refuse_useless(plan: Plan, events: Sequence[Event], asked: str) -> None:
    """Say no to an answer that changes nothing.

    Raises:
        UsageError: nobody asks for it; says what is asked for.
        Refused: everything that waits for it has begun.
    """
    waiting = [step for step in plan.steps if asked in step.approvals]
    if asked == FREEZE:
        return
    if not waiting:
        known = dict.fromkeys(name for step in plan.steps for name in step.approvals)
        raise UsageError(
            f"this delivery has no approval for `{asked}`",
            hint=f"it asks for: {', '.join(known) or 'nothing'}; or {FREEZE}",
        )
    begun = done_steps(events) | {event.step for event in events if event.kind == "started"}
    if all(step.id in begun for step in waiting):
        raise Refused(f"{waiting[0].id} has begun already", hint="`tidegate rollback` rolls a delivery back")


def frozen(freezes: Iterable[FreezeSpec], now: datetime) -> Freeze | None:
    """The freeze that holds at `now`, of several the one that ends last; None when none does."""
    holding: list[Freeze] = []
    for freeze in freezes:
        zone = ZoneInfo(freeze.timezone)
        start = freeze.start.last_before(now, zone)
        end = freeze.end.next_after(start, zone)
        if start <= now < end:
            rule = Rule(by=freeze.lift, not_the_requester=freeze.not_the_requester)
            holding.append(Freeze(since=start, until=end, reason=freeze.reason, rule=rule))
    return max(holding, key=lambda found: found.until, default=None)
