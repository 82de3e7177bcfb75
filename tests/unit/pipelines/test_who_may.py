"""Who may approve, refuse, lift a freeze and carry a delivery on: one rule, one table of all that must not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.identities import FakeIdentities, FakeProver
from fakes.delivery.world import World, a_spec, a_version

from pipelines.authority.answering import AnswerVerifier, Hearing, Speaker, Tally, refuse_unanswerable
from pipelines.authority.approvals import FREEZE, RESUME, Question, Rule, lifting, plan_digest, request, resumption
from pipelines.events.payloads import Opening
from pipelines.model import Ending, Plan
from pipelines.spec.approvals import NAMES, ProvenBy
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Person, Proof, Statement
from registry.model import Event
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeClock

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN, BOB, CY, EVE = "ann of risk", "bob of risk", "cy of sales", "eve of risk"
PLAN = Plan(name="support-llm", version=a_version("2"), champion=a_version("1"), regions=("eu-west-1",), steps=())
OPENED = Opening.of_plan(PLAN, "delivery.yaml").event(AT, "delivery")


def saying(
    question: Question, credential: str, kind: str = "approved", /, *, step: str = "", by: str = "", **changed: Any
) -> Event:
    """Somebody's word as it stands in the ledger, with a statement of that question except for what is changed."""
    says = {"approved": "approve", "refused": "refuse", "requested": "request", "resumed": "resume"}[kind]
    usual = {"says": says, "question": question.name, "delivery": question.delivery, "model": "support-llm",
             "version": "2", "plan": question.plan, "evidence": question.evidence, "at": AT}  # fmt: skip
    data: dict[str, Any] = {"by": by}
    if credential:
        proof = Proof(kind="ssh", statement=Statement.model_validate(usual | changed).text, credential=credential)
        data["proof"] = proof.model_dump()
    return Event(at=AT, step=step or question.name, kind=kind, message="", data=data)


def requested(by: str, **changed: Any) -> Event:
    return saying(request("1", [OPENED]), by, "requested", step="delivery", **changed)


def asked(*rules: Rule, name: str = "wave@2") -> Question:
    rules = rules or (Rule(by=ProvenBy(groups=("risk",)), not_the_requester=name != RESUME),)
    return Question(name=name, rules=rules, delivery="1", plan=plan_digest([OPENED]), evidence="e" * 64, since=AT)


def heard(question: Question, *said: Event, requester: str = EVE) -> Tally:
    events = [OPENED, requested(requester), *said]
    return AnswerVerifier(FakeIdentities()).tally(question, events)


def why(question: Question, event: Event, before: Sequence[Event] = ()) -> str:
    events = [OPENED, requested(EVE), *before]
    return AnswerVerifier(FakeIdentities()).answer(question, event, events).ignored


@dataclass(frozen=True)
class Cheat:
    """Somebody's word that counts for nothing, whatever is asked."""

    why: str
    credential: str = ANN
    changed: dict[str, Any] = field(default_factory=dict)


CHEATS = {
    "a name alone": Cheat("a name alone is not enough here", ""),
    "unknown key": Cheat("no key of allowed_signers made the signature", "forged"),
    "another group": Cheat("cy is not of risk", CY),
    "another delivery": Cheat("it was signed for another delivery", changed={"delivery": "2"}),
    "another question": Cheat("it was signed for another question", changed={"question": "finalize"}),
    "another plan": Cheat("it was signed for another plan", changed={"plan": "0" * 64}),
    "another evidence": Cheat("it was signed for another evidence", changed={"evidence": "0" * 64}),
    "another answer": Cheat("it was signed for another answer", changed={"says": "request"}),
    "before it was asked": Cheat(
        "it was signed at 2026-01-01 10:00:00 UTC, before it was asked", changed={"at": AT - timedelta(hours=2)}
    ),
    "for later": Cheat(
        "it was signed for 2026-01-01 14:00:00 UTC, which was still to come", changed={"at": AT + timedelta(hours=2)}
    ),
}


@pytest.mark.parametrize(("name", "kind"), [("wave@2", "approved"), ("wave@2", "refused"), (FREEZE, "approved"),
                                            (RESUME, "resumed")])  # fmt: skip
@pytest.mark.parametrize("cheat", CHEATS)
def test_who_cheats_decides_nothing(cheat: str, name: str, kind: str) -> None:
    told, question = CHEATS[cheat], asked(name=name)
    assert why(question, saying(question, told.credential, kind, by="Head of Risk", **told.changed)) == told.why
    assert why(question, saying(question, ANN, kind)) == ""


def test_each_person_counts_once_with_the_last_word() -> None:
    question = asked(Rule(by=ProvenBy(groups=("risk",), count=2)))
    ann = saying(question, ANN)
    assert not heard(question, ann, ann, saying(question, "ANN of risk")).enough
    both = heard(question, ann, saying(question, BOB, reason="fine"))
    assert (both.enough, list(map(str, both.heard))) == (
        True, ["ann (SSH key SHA256:x)", "bob (SSH key SHA256:x): fine"]
    )  # fmt: skip
    assert heard(question, ann, saying(question, BOB), saying(question, ANN, "refused")).refusal is not None
    assert heard(question, saying(question, ANN, "refused"), ann).refusal is None


def test_no_matter_who_asked_for_the_delivery_lets_nothing_happen_and_may_refuse_it() -> None:
    question = asked()
    said = heard(question, saying(question, EVE))
    assert [each.ignored for each in said.ignored] == ["who asked for the delivery does not count"]
    assert heard(question, saying(question, EVE, "refused")).refusal is not None
    unknown = "it is not proven who asked for the delivery, so that nobody is known to be another person"
    for requester, changed in ((CY, {"delivery": "2"}), ("forged", {}), ("", {})):
        events = [OPENED, requested(requester, **changed), saying(question, ANN)]
        [ignored] = AnswerVerifier(FakeIdentities()).tally(question, events).ignored
        assert ignored.ignored == unknown


def test_all_that_ask_the_same_must_be_met_and_a_name_is_enough_where_it_is() -> None:
    question = asked(Rule(by=ProvenBy(groups=("risk",))), Rule(by=NAMES), Rule(by=ProvenBy(groups=("sales",))))
    ann, cy = saying(question, ANN), saying(question, CY)
    assert (heard(question, ann).enough, heard(question, cy).enough, heard(question, ann, cy).enough) == (0, 0, 1)
    names = asked(Rule(by=NAMES))
    [said] = heard(names, saying(names, "", by="dora")).heard
    assert str(said) == "dora (named, not proven)"
    early = saying(names, "", by="dora").model_copy(update={"at": AT - timedelta(hours=1)})
    assert why(names, early) == "it was said before this was asked"


def test_where_no_group_is_named_those_count_whom_the_trust_file_lists() -> None:
    question = asked(Rule(by=ProvenBy()))
    assert heard(question, saying(question, ANN)).enough
    assert why(question, saying(question, "dora")) == "dora is of no group of trust.yaml"


def test_keys_that_cannot_be_had_for_a_while_cost_nobody_their_answer_and_each_proof_is_checked_once() -> None:
    question, identities = asked(Rule(by=ProvenBy(groups=("risk",)))), FakeIdentities(away=True)
    verifier, events = AnswerVerifier(identities), [OPENED, saying(question, ANN)]
    [ignored] = verifier.tally(question, events).ignored
    assert ignored.ignored == "it cannot be checked now: cannot fetch the issuer's keys"
    identities.away = False
    assert verifier.tally(question, events).enough
    assert verifier.tally(question, events).enough
    assert identities.asked == [ANN, ANN]


def test_who_lifts_a_freeze_lifts_no_other() -> None:
    freezes = "freeze: [{from: 2026-01-01, to: 2026-01-02, reason: a}, {from: 2026-01-03, to: 2026-01-04, reason: b}]"
    spec = a_spec(traffic=f"traffic: {{requests_per_second: 200}}\n{freezes}")
    first, second = (lifting(spec, "1", [OPENED], AT + timedelta(days=days)) for days in (0, 2))
    assert first and second
    assert why(second, saying(second, ANN, evidence=first.evidence, at=second.since)) != ""
    assert first.evidence != second.evidence
    assert lifting(spec, "1", [OPENED], AT + timedelta(days=1)) is None


RESUMED_BY = {
    "": "resume takes the one who asked for the delivery",
    "{by: {groups: [on-call]}}": "resume takes one of on-call",
    "{by: names}": "resume takes anybody who gives a name",
}


def resuming(resume: str, events: list[Event]) -> Hearing:
    more = f"\nresume: {resume}" if resume else ""
    spec = a_spec(traffic=f"traffic: {{requests_per_second: 200}}{more}")
    return Hearing(spec, "1", events, FakeIdentities(), FakeClock())


@pytest.mark.parametrize(
    ("resume", "requester", "speaker", "said"),
    [
        ("", None, Speaker(), None),
        ("", None, Speaker(by="dora"), "dora"),
        ("", EVE, Speaker(), UsageError),
        ("", EVE, Speaker(prover=FakeProver(EVE)), "eve"),
        ("", EVE, Speaker(by="eve"), UsageError),
        ("", EVE, Speaker(prover=FakeProver(ANN)), UsageError),
        ("", "forged", Speaker(prover=FakeProver(ANN)), UsageError),
        ("{by: {groups: [on-call]}}", None, Speaker(), UsageError),
        ("{by: {groups: [on-call]}}", EVE, Speaker(prover=FakeProver("bob of on-call")), "bob"),
        ("{by: {groups: [on-call]}}", EVE, Speaker(prover=FakeProver(EVE)), "eve"),
        ("{by: {groups: [on-call]}}", EVE, Speaker(prover=FakeProver(CY)), UsageError),
        ("{by: {groups: [on-call]}}", EVE, Speaker(by="bob"), UsageError),
        ("{by: names}", EVE, Speaker(by="bob"), "bob"),
        ("{by: names}", EVE, Speaker(), UsageError),
    ],
)
def test_somebody_elses_delivery_is_carried_on_by_those_whom_the_spec_names(
    resume: str, requester: str | None, speaker: Speaker, said: str | type[UsageError] | None
) -> None:
    events = [OPENED, *([requested(requester)] if requester else [])]
    hearing = resuming(resume, events)
    if said is UsageError:
        with pytest.raises(UsageError) as refused:
            hearing.resumption(speaker)
        assert RESUMED_BY[resume] in str(refused.value)
        return
    event = hearing.resumption(speaker)
    assert (event and event.data["by"]) == said
    if event:
        AnswerVerifier(FakeIdentities()).refuse_unproven_heir(hearing.spec.resume, "1", [*events, event])


def test_a_resumption_that_was_overtaken_is_signed_again() -> None:
    resume, verifier = "{by: {groups: [on-call]}}", AnswerVerifier(FakeIdentities())
    hearing = resuming(resume, [OPENED])
    bob = Speaker(prover=FakeProver("bob of on-call"))
    said, between = hearing.resumption(bob), Event(at=AT, step="wave@2", kind="approved", message="ann")
    assert said
    overtaken = [OPENED, between, said]
    with pytest.raises(UsageError, match=r"carried this delivery on at .* and may not: .* another evidence"):
        verifier.refuse_unproven_heir(hearing.spec.resume, "1", overtaken)
    with pytest.raises(UsageError, match="another evidence"):
        verifier.refuse_unproven_heir(hearing.spec.resume, "1", [OPENED, said, said])
    again = replace(hearing, events=overtaken).resumption(bob)
    assert again
    verifier.refuse_unproven_heir(hearing.spec.resume, "1", [*overtaken, again])
    with pytest.raises(OutsideError):
        AnswerVerifier(FakeIdentities(away=True)).refuse_unproven_heir(hearing.spec.resume, "1", [OPENED, said])


def test_what_a_resumption_speaks_of_is_all_that_has_happened() -> None:
    last = saying(asked(), ANN)
    evidence = {resumption(None, "1", events).evidence for events in ([], [OPENED], [OPENED, last], [last, OPENED])}
    assert len(evidence) == 4


def approving(approval: str) -> Delivery:
    return a_spec(traffic=f"traffic: {{requests_per_second: 200}}\napprovals: [{approval}]")


TWO = "{before: wave, wave: 1, within: 10m, by: {groups: [risk], count: 2}, not_the_requester: true}"
KEYS = "allowed_signers: allowed_signers\ngroups: {risk: [ann, bob, ann@corp]}\naliases: {ann: [ann@corp]}"
ISSUER = f"{KEYS}\noidc: [{{issuer: 'https://login.example.com', jwks_file: k, groups_claim: groups}}]"


@pytest.mark.parametrize(
    ("approval", "trust", "requester", "complaint"),
    [
        ("{before: finalize}", "{}", None, r"approvals\[0\].by: nobody can prove who they are; .* `by: names`"),
        ("{before: finalize, by: {groups: [board]}}", KEYS, None, "board is no group of trust.yaml"),
        ("{before: finalize, by: {groups: [risk], count: 3}}", KEYS, None, "3 of risk, who are 2"),
        ("{before: finalize, not_the_requester: true}", KEYS, None, "it is not known who asks; .*--identity"),
        (TWO, KEYS, "ANN", "2 of risk, who are 1 without ANN, who asks; .* somebody else ask"),
        (TWO, KEYS, "eve", ""),
        (TWO, ISSUER, "ann", ""),
        (TWO.replace("count: 2", "count: 1"), KEYS, "ann", ""),
        (TWO.replace(", not_the_requester: true", ""), KEYS, "ann", ""),
        ("{before: finalize, by: names}", "{}", None, ""),
    ],
)
def test_a_delivery_that_would_wait_in_vain_is_not_opened(
    approval: str, trust: str, requester: str | None, complaint: str
) -> None:
    spec, approvers = approving(approval), parse_spec(trust, ApproversSpec, file="trust.yaml")
    person = Person(identity=requester) if requester else None
    if complaint:
        with pytest.raises(UsageError, match=complaint):
            refuse_unanswerable(spec.approvals, approvers, asked=requester is not None, requester=person)
    else:
        refuse_unanswerable(spec.approvals, approvers, asked=requester is not None, requester=person)


async def test_a_delivery_of_one_whom_its_approval_needs_fails_before_anything_begins(tmp_path: Path) -> None:
    world = World(tmp_path, approving(TWO))
    world.asker, world.identities.approvers = FakeProver(ANN), parse_spec(KEYS, ApproversSpec, file="trust.yaml")
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, 2)
    assert "who are 1 without ann, who asks" in result.reason
    assert world.said("requested") == world.said("waiting") == []
