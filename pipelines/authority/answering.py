"""What people say to a delivery: who asks for it, that a step may begin or not, that they carry it on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.authority.approvals import (
    FREEZE,
    WORDS,
    Question,
    approval,
    lifting,
    refuse_useless,
    request,
    resumption,
)
from pipelines.authority.verification import AnswerVerifier, refuse_unanswerable
from pipelines.events.history import plan_of
from pipelines.events.payloads import ApprovalDenied, ApprovalGiven, DeliveryRequested, DeliveryResumed, PersonAnswer
from pipelines.spec.delivery import Delivery
from pipelines.statements import Identities, Person, Prover, Statement
from registry.model import Event
from tidegate.core.clock import Clock
from tidegate.core.errors import Refused, UsageError
from tidegate.core.process import note


@dataclass(frozen=True)
class Speaker:
    """Who says something: by a name, or by what proves it.

    Raises:
        UsageError: by both.
    """

    by: str | None = None
    prover: Prover | None = None

    def __post_init__(self) -> None:
        if self.by is not None and self.prover is not None:
            hint = "leave it out: the key or the token says who it is"
            raise UsageError("--by is for a name without proof", hint=hint)


@dataclass(frozen=True)
class Hearing:
    """A delivery to which people speak: each method makes the event for its ledger, checked as it will be there.

    All of them raise UsageError where it would not count, or where nothing says who speaks.
    """

    spec: Delivery
    """As the delivery kept it."""
    delivery: str
    events: Sequence[Event]
    """All that its ledger has."""
    identities: Identities
    clock: Clock

    def request(self, asker: Prover) -> Event:
        """Who asks for the delivery, which was just opened; refused where too few others could approve it."""
        event, person = self._said(DeliveryRequested, request(self.delivery, self.events), Speaker(prover=asker))
        approvers = self.identities.approvers
        refuse_unanswerable(self.spec.approvals, approvers, asked=True, requester=person)
        return event

    def resumption(self, speaker: Speaker) -> Event | None:
        """Who carries the delivery on; None when nobody says it, and nobody need.

        It speaks of all that has happened so far: it counts once, before anything else is written.
        """
        question = resumption(self.spec.resume, self.delivery, self.events)
        if speaker == Speaker() and not question.rules:
            return None
        return self._said(DeliveryResumed, question, speaker)[0]

    def answer(self, asked: str, speaker: Speaker, *, reason: str = "", refuse: bool = False) -> Event:
        """An approval or a refusal of a step's id, `wave@2` or `freeze`.

        Raises:
            UsageError: nobody asks for it, or a refusal gives no reason.
            Refused: what waits for it has begun, or it is not asked yet.
        """
        if refuse and not reason:
            raise UsageError("a refusal needs a reason", hint="add --reason TEXT: it becomes the delivery's")
        plan = plan_of(self.events)
        refuse_useless(plan, self.events, asked)
        if asked != FREEZE:
            question = approval(self.spec, plan, self.delivery, self.events, asked)
        elif (lifted := lifting(self.spec, self.delivery, self.events, self.clock.now())) is not None:
            question = lifted
        else:
            hint = "an answer to a freeze counts for the one that holds, not for a later one"
            raise Refused("there is no freeze to lift now", hint=hint)
        if speaker.prover and question.since is None and not question.names:
            hint = "answer once it waits: what you decide on does not exist before"
            raise Refused(f"the delivery does not ask for {asked} yet", hint=hint)
        payload = ApprovalDenied if refuse else ApprovalGiven
        return self._said(payload, question, speaker, step=asked, reason=reason)[0]

    def _said(
        self,
        payload: type[PersonAnswer],
        question: Question,
        speaker: Speaker,
        step: str = "delivery",
        reason: str = "",
    ) -> tuple[Event, Person | None]:
        """The event, and who that is; None where no answer can be checked on this machine."""
        takes = f"{question.name} takes {question.asked_of}" if question.rules else None
        if speaker == Speaker():
            raise UsageError("nothing says who you are", hint=f"{takes}: give --identity, or --by NAME")
        data: dict[str, Any] = {"by": speaker.by or "", "reason": reason}
        if speaker.prover:
            data["proof"] = speaker.prover(self._statement(payload, question, reason))
            if step != "delivery" and not self.identities.approvers.anybody:
                note("there is no trust.yaml with `approvers` here; the step that waits checks who this was")
                message = f"not checked here: {reason}" if reason else "not checked here"
                return payload(**data).event(self.clock.now(), step, message), None
        now = self.clock.now()
        said = AnswerVerifier(self.identities).answer(question, payload(**data).event(now, step), self.events)
        if said.ignored:
            raise UsageError(f"this would not count: {said.ignored}", hint=takes)
        return payload(**data | {"by": said.person.identity}).event(now, step, str(said)), said.person

    def _statement(self, payload: type[PersonAnswer], question: Question, reason: str) -> str:
        version = plan_of(self.events).version
        return Statement(
            says=WORDS[payload.kind],
            question=question.name,
            delivery=self.delivery,
            model=version.name,
            version=version.version,
            plan=question.plan,
            evidence=question.evidence,
            reason=reason,
            at=self.clock.now(),
        ).text
