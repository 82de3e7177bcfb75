"""A person's answer to a delivery that waits for an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pipelines.adapters.specs import kept_spec
from pipelines.authority.approvals import (
    FREEZE,
    ApprovalQuestion,
    ApprovalRule,
    ValidAnswer,
    asked_at,
    evidence_digest,
    freeze_digest,
    frozen,
    plan_digest,
    refuse_useless,
    terms_of,
)
from pipelines.authority.verification import AnswerVerifier, first_uses
from pipelines.events.history import plan_of
from pipelines.events.payloads import ApprovalDenied, ApprovalGiven
from pipelines.model import Plan
from pipelines.ports import DeliveryLedger
from pipelines.spec.approvals import NAMES
from pipelines.spec.delivery import Delivery
from pipelines.statements import NAMED, Proof, Prover, Statement, digest_of, read_statement
from registry.model import Event
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, UsageError
from tidegate.core.model import Value
from tidegate.core.process import note
from tidegate.surroundings import Surroundings


@dataclass(frozen=True)
class Answer:
    """What a person says."""

    delivery: str
    asked: str
    by: str | None = None
    reason: str = ""
    refuse: bool = False
    prover: Prover | None = None
    """Proves who answers; a name alone is proof only where the spec says so."""
    write_statement: Path | None = None
    """Where to write what is to be signed, instead of answering."""
    statement: Path | None = None
    """What was written there before, to be handed in with `signature` or a token."""
    signature: Prover | None = None
    """A signature of the statement that was made elsewhere."""

    @property
    def answer(self) -> type[ApprovalGiven | ApprovalDenied]:
        """What the event carries."""
        return ApprovalDenied if self.refuse else ApprovalGiven


class ApprovalResult(Value):
    """What a person's answer came to."""

    delivery: str
    question: str
    """A step's id, `wave@N` or `freeze`."""
    model: str
    version: str
    answer: str | None = None
    """`approved` or `refused`; None where only a statement was written."""
    by: str = ""
    """Who answered, as the step that waits will say it."""
    reason: str = ""
    digest: str = ""
    """Of the statement that was written."""

    def __str__(self) -> str:
        if self.answer is None:
            return f"digest: {self.digest}"
        return f"{self.answer}: {self.question} of {self.model} {self.version}{f' by {self.by}' if self.by else ''}"


def approve(at: Surroundings, answer: Answer) -> ApprovalResult:
    """Write the answer into the delivery's ledger, where the step that waits reads and checks it.

    Raises:
        UsageError: nobody asks for it, a refusal gives no reason, or it would not count.
        Refused: the delivery is over, what waits for it has begun, or it is not asked yet.
    """
    if answer.refuse and not answer.reason:
        raise UsageError("a refusal needs a reason", hint="add --reason TEXT: it becomes the delivery's")
    deliveries = at.deliveries()
    answer = replace(answer, delivery=deliveries.whole_id(answer.delivery))
    summary = deliveries.summary(answer.delivery)
    if summary.ended is not None:
        raise Refused(
            f"delivery {answer.delivery} is over: {summary.outcome}: {summary.reason}",
            hint="`tidegate deliver` begins another",
        )
    # Said from outside: that a person answers does not mean that the delivery's process lives.
    ledger = deliveries.join(answer.delivery, carries=False)
    events = ledger.recorded()
    plan = plan_of(events)
    refuse_useless(plan, events, answer.asked)
    question = _question(kept_spec(deliveries, answer.delivery, events), plan, answer, events)
    prover = _prover(answer)
    if answer.write_statement:
        text = _statement(answer, question, plan)
        _write_statement(answer, text, answer.write_statement)
        return _result(answer, plan, digest=digest_of(text))
    if prover is None:
        return _record_named(answer, question, ledger, plan)
    proof = prover.prove(_statement(answer, question, plan))
    return _record_proven(at, answer, question, proof, (ledger, plan))


def _result(options: Answer, plan: Plan, **more: str) -> ApprovalResult:
    version = plan.version
    return ApprovalResult(
        delivery=options.delivery, question=options.asked, model=version.name, version=version.version, **more
    )


def _question(spec: Delivery, plan: Plan, answer: Answer, events: Sequence[Event]) -> ApprovalQuestion:
    """What is asked, as the step that waits asks it."""
    now = SystemClock().now()
    common = {"name": answer.asked, "delivery": answer.delivery, "plan": plan_digest(events)}
    if answer.asked == FREEZE:
        holding = frozen(spec.freeze, now)
        if holding is None:
            raise Refused(
                "there is no freeze to lift now",
                hint="an answer to a freeze counts for the one that holds, not for a later one",
            )
        evidence = freeze_digest(holding.until, holding.reason)
        return ApprovalQuestion.model_validate(
            common | {"terms": (holding.terms,), "evidence": evidence, "since": holding.since}
        )
    terms: tuple[ApprovalRule, ...] = terms_of(spec.approvals, answer.asked, plan.steps)
    evidence = evidence_digest(plan, answer.asked, events)
    question = ApprovalQuestion.model_validate(common | {"terms": terms, "evidence": evidence, "since": None})
    return question if question.names else question.model_copy(update={"since": asked_at(events, question)})


def _prover(answer: Answer) -> Prover | None:
    """What proves it, if anything; two ways to prove it are a mistake."""
    prover = answer.prover
    if answer.signature is not None:
        if prover is not None or answer.statement is None:
            raise UsageError("--signature belongs to --statement FILE", hint="and to no key and no token")
        return answer.signature
    if answer.by is not None and prover is not None:
        raise UsageError("--by is for a name without proof", hint="leave it out: the key or the token says who it is")
    if answer.by is None and prover is None and answer.write_statement is None:
        raise UsageError(
            "nothing says who you are",
            hint="give --identity, or --by NAME where the spec accepts names",
        )
    return prover


def _record_named(answer: Answer, question: ApprovalQuestion, ledger: DeliveryLedger, plan: Plan) -> ApprovalResult:
    if not any(terms.by == NAMES for terms in question.terms):
        raise UsageError(
            f"a name alone is no approval of {question.name}, which needs {question.asked_of()}",
            hint="prove who you are: --identity",
        )
    by = answer.by or ""
    message = f"{by} ({NAMED}): {answer.reason}" if answer.reason else f"{by} ({NAMED})"
    recorded = answer.answer(by=by, reason=answer.reason)
    ledger.append(recorded.event(SystemClock().now(), answer.asked, message))
    return _result(answer, plan, answer=answer.answer.kind, by=f"{by} ({NAMED})", reason=answer.reason)


def _statement(answer: Answer, question: ApprovalQuestion, plan: Plan) -> str:
    """What is signed: of what is there to see now.

    Raises:
        Refused: it was not asked, so that there is nothing to see yet.
    """
    if question.since is None and not question.names:
        raise Refused(
            f"the delivery does not ask for {question.name} yet",
            hint="answer once it waits: what you decide on does not exist before",
        )
    if answer.statement is not None:
        return _statement_text(answer.statement)
    return Statement(
        says="refuse" if answer.refuse else "approve",
        question=question.name,
        delivery=question.delivery,
        model=plan.version.name,
        version=plan.version.version,
        plan=question.plan,
        evidence=question.evidence,
        reason=answer.reason,
        at=_to_the_second(SystemClock().now()),
    ).text


def _write_statement(answer: Answer, text: str, to: Path) -> None:
    """Leave the statement for a key, or for an issuer's login, that is elsewhere."""
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{to}: cannot be written: {error.strerror}", hint="name another file with --write-statement"
        ) from None
    note(
        f"sign it with `ssh-keygen -Y sign -n tidegate -f KEY {to}`, or have a token issued with this digest as nonce "
        "or in its audience;"
    )
    back = f"tidegate approve {answer.delivery} {answer.asked} --statement {to} --signature {to}.sig"
    note(f"then `{back}{' --refuse --reason TEXT' if answer.refuse else ''}`, or with --identity oidc:FILE")


def _record_proven(
    at: Surroundings, answer: Answer, question: ApprovalQuestion, proof: Proof, known: tuple[DeliveryLedger, Plan]
) -> ApprovalResult:
    said, (ledger, plan) = read_statement(proof), known
    event = answer.answer(proof=proof).event(SystemClock().now(), answer.asked)
    heard = _evaluate(at, question, event, ledger) if at.trusted.trust.approvers.anybody else None
    if isinstance(heard, str):
        raise UsageError(f"this answer would not count: {heard}", hint="answer with a proof that the spec asks for")
    who = str(heard.person) if heard else "not checked here"
    message = f"{who}: {said.reason}" if said.reason else who
    by = heard.person.identity if heard else ""
    recorded = answer.answer(by=by, reason=said.reason, proof=proof)
    ledger.append(recorded.event(SystemClock().now(), answer.asked, message))
    if heard is None:
        note("there is no trust.yaml with `approvers` here; the step that waits checks who this was")
    return _result(answer, plan, answer=answer.answer.kind, by=who, reason=said.reason)


def _evaluate(at: Surroundings, question: ApprovalQuestion, event: Event, ledger: DeliveryLedger) -> ValidAnswer | str:
    """What the step that waits will make of it, by the trust file of this machine."""
    hearing = AnswerVerifier(at.identities)

    async def hear() -> ValidAnswer | str:
        asker = await hearing.requester(question.delivery, ledger.known)
        return await hearing.answer(question, event, asker, first_uses(ledger.known))

    return asyncio.run(hear())


def _to_the_second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _statement_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(
            f"{path}: cannot be read as a statement: {reason}",
            hint="`tidegate approve --write-statement FILE` writes it",
        ) from None
