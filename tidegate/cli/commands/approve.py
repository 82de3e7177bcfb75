"""`tidegate approve`: what a person says to a delivery that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.answers import Heard, Question, Terms, asked_at
from pipelines.approval_spec import NAMES
from pipelines.approvals import FREEZE, refuse_useless, terms_of
from pipelines.freezes import frozen
from pipelines.hearing import Hearing
from pipelines.identity.bound import evidence_digest, freeze_digest, plan_digest
from pipelines.identity.model import NAMED, Proof, Statement, digest_of, read_statement
from pipelines.identity.ports import Prover
from pipelines.model import Plan
from pipelines.ports import Event
from pipelines.recorded import plan_of
from pipelines.spec import Delivery
from pipelines.trust import Trusted
from registry.adapters.mlflow_ledger import MlflowLedger
from tidegate.cli.compose import open_deliveries
from tidegate.cli.kept_spec import kept_spec
from tidegate.cli.output import note, say
from tidegate.cli.prover import BySignature, Means, identities_here, read_text
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused, UsageError


@dataclass(frozen=True)
class Answer:
    """What a person says."""

    delivery: str
    asked: str
    by: str | None
    reason: str
    refuse: bool
    means: Means
    write_statement: Path | None = None
    """Where to write what is to be signed, instead of answering."""
    statement: Path | None = None
    """What was written there before, to be handed in with `signature` or a token."""
    signature: Path | None = None

    @property
    def kind(self) -> str:
        """Of the event."""
        return "refused" if self.refuse else "approved"


def run(answer: Answer, state: Path, tracking_uri: str | None, trusted: Trusted) -> int:
    """Write the answer into the delivery's ledger; the step that waits reads and checks it there.

    Raises:
        UsageError: nobody asks for it, a refusal gives no reason, or it would not count.
        Refused: the delivery is over, what waits for it has begun, or it is not asked yet.
    """
    if answer.refuse and not answer.reason:
        raise UsageError("a refusal without a reason", hint="add --reason TEXT: it becomes the delivery's")
    deliveries = open_deliveries(state, tracking_uri)
    summary = deliveries.summary(answer.delivery)
    if summary.ended is not None:
        raise Refused(f"delivery {answer.delivery} is over: {summary.outcome}: {summary.reason}")
    # Said from outside: that a person answers does not mean that the delivery's process lives.
    ledger = deliveries.join(answer.delivery, carries=False)
    events = ledger.recorded()
    plan = plan_of(events)
    refuse_useless(plan, events, answer.asked)
    question = _question(kept_spec(deliveries, answer.delivery, events), plan, answer, events)
    prover = _prover(answer)
    if answer.write_statement:
        return _written(answer, _statement(answer, question, plan), answer.write_statement)
    if prover is None:
        return _named(answer, question, ledger, summary.name)
    proof = prover.prove(_statement(answer, question, plan))
    return _proven(answer, question, proof, ledger, trusted)


def _question(spec: Delivery, plan: Plan, answer: Answer, events: Sequence[Event]) -> Question:
    """What is asked, as the step that waits asks it."""
    now = SystemClock().now()
    common = {"name": answer.asked, "delivery": answer.delivery, "plan": plan_digest(events)}
    if answer.asked == FREEZE:
        holding = frozen(spec.freeze, now)
        if holding is None:
            raise Refused("no freeze holds now", hint="whoever lifts one lifts the one that holds, and no other")
        evidence = freeze_digest(holding.until, holding.reason)
        return Question.model_validate(
            common | {"terms": (holding.terms,), "evidence": evidence, "since": holding.since}
        )
    terms: tuple[Terms, ...] = terms_of(spec.approvals, answer.asked, plan.steps)
    evidence = evidence_digest(plan, answer.asked, events)
    question = Question.model_validate(common | {"terms": terms, "evidence": evidence, "since": None})
    return question if question.names else question.model_copy(update={"since": asked_at(events, question)})


def _prover(answer: Answer) -> Prover | None:
    """What proves it, if anything; two ways to prove it are a mistake."""
    prover = answer.means.prover
    if answer.signature is not None:
        if prover is not None or answer.statement is None:
            raise UsageError("--signature belongs to --statement FILE", hint="and to no key and no token")
        return BySignature(answer.signature)
    if answer.by is not None and prover is not None:
        raise UsageError("--by is for a name without proof", hint="leave it out: the key or the token says who it is")
    if answer.by is None and prover is None and answer.write_statement is None:
        raise UsageError("who says so?", hint="--ssh-key FILE, an OIDC token, or --by NAME where names are enough")
    return prover


def _named(answer: Answer, question: Question, ledger: MlflowLedger, model: str) -> int:
    if not any(terms.by == NAMES for terms in question.terms):
        raise UsageError(
            f"a name alone is no approval of {question.name}, which needs {question.asked_of()}",
            hint="prove who you are: --ssh-key FILE, or an OIDC token",
        )
    by = answer.by or ""
    message = f"{by} ({NAMED}): {answer.reason}" if answer.reason else f"{by} ({NAMED})"
    data = {"by": by, "reason": answer.reason}
    _append(ledger, answer, message, data)
    say(f"{answer.kind}: {answer.asked} of {model} {plan_of(ledger.known).version.version}")
    return 0


def _statement(answer: Answer, question: Question, plan: Plan) -> str:
    """What is signed: of what is there to see now.

    Raises:
        Refused: it was not asked, so that there is nothing to see yet.
    """
    if question.since is None and not question.names:
        raise Refused(f"{question.name} is not asked yet", hint="what it is decided by is not there before")
    if answer.statement is not None:
        return read_text(answer.statement, "a statement")
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


def _written(answer: Answer, text: str, to: Path) -> int:
    """Leave the statement for a key, or for an issuer's login, that is elsewhere."""
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{to}: cannot be written: {error.strerror}") from None
    say(f"digest: {digest_of(text)}")
    note(
        f"sign it with `ssh-keygen -Y sign -n tidegate -f KEY {to}`, or have a token issued with this digest as nonce;"
    )
    back = f"tidegate approve {answer.delivery} {answer.asked} --statement {to} --signature {to}.sig"
    note(f"then `{back}{' --refuse --reason TEXT' if answer.refuse else ''}`, or with --oidc-token-file")
    return 0


def _proven(answer: Answer, question: Question, proof: Proof, ledger: MlflowLedger, trusted: Trusted) -> int:
    said = read_statement(proof)
    event = Event(at=SystemClock().now(), step=answer.asked, kind=answer.kind, message="", data={"proof": proof})
    heard = _heard(question, event, ledger, trusted) if trusted.trust.approvers.anybody else None
    if isinstance(heard, str):
        raise UsageError(f"this would not count: {heard}")
    who = str(heard.person) if heard else "not checked here"
    message = f"{who}: {said.reason}" if said.reason else who
    by = heard.person.identity if heard else ""
    _append(ledger, answer, message, {"by": by, "reason": said.reason, "proof": proof.model_dump()})
    say(f"{answer.kind}: {answer.asked} of {said.model} {said.version} by {who}")
    if heard is None:
        note("there is no trust.yaml with `approvers` here; the step that waits checks who this was")
    return 0


def _append(ledger: MlflowLedger, answer: Answer, message: str, data: Mapping[str, object]) -> None:
    ledger.append(Event(at=SystemClock().now(), step=answer.asked, kind=answer.kind, message=message, data=data))


def _heard(question: Question, event: Event, ledger: MlflowLedger, trusted: Trusted) -> Heard | str:
    """What the step that waits will make of it, by the trust file of this machine."""
    hearing = Hearing(identities_here(trusted))

    async def hear() -> Heard | str:
        asker = await hearing.requester(question.delivery, ledger.known)
        return await hearing.answer(question, event, asker)

    return asyncio.run(hear())


def _to_the_second(at: datetime) -> datetime:
    return at.replace(microsecond=0)
