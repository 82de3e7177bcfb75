"""An approval counts when it is proven who gave it, for what they saw, and by whom the spec wants it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.identities import FakeIdentities, FakeProver
from fakes.delivery.world import CHALLENGER, Steps, World, a_spec

from pipelines.authority.approvals import plan_digest
from pipelines.authority.verification import refuse_heir, refuse_too_few_others, refuse_unanswerable
from pipelines.events.payloads import Waiting
from pipelines.model import Ending
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Person, Statement
from registry.model import Event
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError, parse_spec

WAVE = "deploy@eu-west-1"
RISK = "{before: wave, wave: 1, within: 10m, by: {groups: [risk]}}"
TWO = "{before: wave, wave: 1, within: 10m, by: {groups: [risk], count: 2}, not_the_requester: true}"
ANN, BOB, CY = "ann of risk", "bob of risk", "cy of sales"


def asking(approval: str, more: str = "") -> Delivery:
    """Of one region, before which people are asked."""
    return one_region(f"\napprovals: [{approval}]{more}")


def one_region(more: str) -> Delivery:
    regions = "regions: {waves: [[eu-west-1]], bake: 10s}"
    return a_spec(regions=regions, traffic=f"traffic: {{requests_per_second: 200}}{more}")


def signs(world: World, credential: str, says: str = "approve", *, waiting: str = WAVE, **changed: Any) -> None:
    """As `tidegate approve` does it for what was asked last, except for what is changed of the statement."""
    asked = [event for event in world.ledger.events if (event.step, event.kind) == (waiting, "waiting")][-1]
    what = Waiting.model_validate(asked.data)
    statement = Statement.model_validate(
        {
            "says": says, "question": what.approval or "freeze", "delivery": world.ledger.delivery,
            "model": "support-llm", "version": CHALLENGER, "plan": plan_digest(world.ledger.events),
            "evidence": what.evidence, "at": world.now(),
        } | changed
    )  # fmt: skip
    proof = FakeProver(credential).prove(statement.text)
    kind = {"approve": "approved", "refuse": "refused"}[says]
    data = {"by": credential.split(maxsplit=1)[0], "reason": statement.reason, "proof": proof.model_dump()}
    world.appends(Event(at=world.now(), step=what.approval or "freeze", kind=kind, message=credential, data=data))


def then(world: World, *actions: Callable[[], None]) -> None:
    """Do them once the wave is asked for."""
    world.when(WAVE, "waiting", lambda: [action() for action in actions])


def ignored(world: World) -> list[str]:
    return [
        event.message.partition(" does not count: ")[2] for event in world.recorder.events if event.kind == "ignored"
    ]


async def undecided(world: World) -> list[str]:
    """Why nothing that was said counted."""
    assert (await world.deliver()).ending is Ending.INCONCLUSIVE
    assert "started" not in [event.kind for event in world.recorder.events if event.step == WAVE]
    return ignored(world)


async def test_a_proven_approval_lets_it_go_on_and_says_by_whom_and_how(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    then(world, lambda: signs(world, ANN, reason="looks fine"))
    assert (await world.deliver()).ending is Ending.DELIVERED
    [waiting] = [event for event in world.recorder.events if event.kind == "waiting"]
    assert waiting.message == (
        "for an approval of wave@1 by one of risk until 2026-01-01 00:10 UTC: "
        "`tidegate approve 1 wave@1 --identity ssh:FILE`"
    )
    said = "wave@1 was approved by ann (SSH key SHA256:x): looks fine"
    assert [event.message for event in world.recorder.events if event.kind == "allowed"] == [said]
    assert world.story.allowed == (said,)


async def test_a_name_alone_is_no_approval(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    then(world, lambda: world.answers("wave@1", "approved", "Head of Model Risk"))
    assert await undecided(world) == ["a name alone is no approval here"]


async def test_without_a_word_about_it_a_name_is_not_enough(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 1, within: 10m}"))
    then(world, lambda: world.answers("wave@1", "approved", "ann"))
    assert await undecided(world) == ["a name alone is no approval here"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("credential", "changed", "why"),
    [
        ("forged", {}, "no key of allowed_signers made the signature"),
        (CY, {}, "cy is not of risk"),
        (ANN, {"delivery": "2"}, "it was signed for another delivery"),
        (ANN, {"question": "finalize"}, "it was signed for another question"),
        (ANN, {"plan": "0" * 64}, "it was signed for another plan"),
        (ANN, {"evidence": "0" * 64}, "it was signed for another evidence"),
        (ANN, {"says": "refuse"}, "it was signed for another answer"),
    ],
)
async def test_what_does_not_prove_it_is_ignored_where_people_see_it(
    tmp_path: Path, credential: str, changed: dict[str, str], why: str
) -> None:
    world = World(tmp_path, asking(RISK))
    says = changed.pop("says", None)
    then(world, lambda: _mislabelled(world, credential) if says else signs(world, credential, **changed))
    assert await undecided(world) == [why]


def _mislabelled(world: World, credential: str) -> None:
    """A refusal that somebody wrote down as an approval."""
    signs(world, credential, "refuse", reason="no")
    world.ledger.events[-1] = world.ledger.events[-1].model_copy(update={"kind": "approved"})


async def test_what_was_signed_before_it_was_asked_or_for_later_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    early, late = (world.now() - timedelta(hours=2), timedelta(hours=2))
    then(world, lambda: signs(world, ANN, at=early), lambda: signs(world, BOB, at=world.now() + late))
    first, second = await undecided(world)
    assert first == "it was signed at 2025-12-31 22:00:00 UTC, before it was asked"
    assert second.endswith("which was still to come")


async def test_one_person_twice_is_one_person_and_two_are_two(tmp_path: Path) -> None:
    world = World(tmp_path, asking(TWO))
    world.asker = FakeProver("eve of risk")
    then(world, lambda: signs(world, ANN), lambda: signs(world, "ANN of risk"))
    assert await undecided(world) == []
    (tmp_path / "next").mkdir()
    other = World(tmp_path / "next", asking(TWO))
    other.asker = FakeProver("eve of risk")
    then(other, lambda: signs(other, ANN), lambda: signs(other, BOB))
    assert (await other.deliver()).ending is Ending.DELIVERED


async def test_no_matter_who_asked_for_the_delivery_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, asking(TWO))
    world.asker = FakeProver(ANN)
    then(world, lambda: signs(world, ANN), lambda: signs(world, BOB))
    assert await undecided(world) == ["who asked for the delivery does not count"]
    assert world.story.requester == "ann (SSH key SHA256:x)"


async def test_when_no_one_knows_who_asked_nobody_counts(tmp_path: Path) -> None:
    world = World(tmp_path, asking(TWO))
    then(world, lambda: signs(world, ANN))
    assert await undecided(world) == [
        "it is not proven who asked for the delivery, so that nobody is known to be another person"
    ]


async def test_a_request_of_another_delivery_proves_nobody(tmp_path: Path) -> None:
    first = World(tmp_path, asking(TWO))
    first.asker = FakeProver("eve of risk")
    await first.deliver()
    [requested] = [event for event in first.ledger.events if event.kind == "requested"]
    (tmp_path / "next").mkdir()
    world = World(tmp_path / "next", asking(TWO))
    world.ledger.delivery = "2"
    then(world, lambda: world.ledger.append(requested), lambda: signs(world, ANN))
    assert len(await undecided(world)) == 1


async def test_a_proven_refusal_takes_it_back_and_one_without_proof_does_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    then(world, lambda: signs(world, CY, "refuse", reason="no"), lambda: signs(world, ANN, "refuse", reason="sale"))
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert result.reason.endswith("wave@1 was refused by ann (SSH key SHA256:x): sale")


async def test_a_token_that_is_bound_to_nothing_counts_for_one_answer(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 1, within: 10m, by: {groups: [risk], count: 2}}"))
    then(world, lambda: signs(world, f"{ANN} once t"), lambda: signs(world, f"{ANN} once t", reason="me too"))
    assert await undecided(world) == ["its token was used for another answer before"]


async def test_keys_that_cannot_be_had_for_a_while_cost_nobody_their_approval(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    world.identities.away = True
    then(world, lambda: signs(world, ANN))
    world.when(WAVE, "ignored", lambda: setattr(world.identities, "away", False))
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert ignored(world) == ["it cannot be checked now: cannot fetch the issuer's keys"]


async def test_what_was_checked_is_not_checked_again(tmp_path: Path) -> None:
    world = World(tmp_path, asking(RISK))
    then(world, lambda: signs(world, CY))
    await undecided(world)
    assert world.identities.asked == ["cy of sales"]


async def test_other_evidence_is_another_question(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: promote, region: eu-west-1, by: {groups: [risk]}}"))
    steps = Steps(world, tmp_path)
    await steps.until("canary@eu-west-1/50")
    step = "promote@eu-west-1"

    def more() -> None:
        signs(world, ANN, waiting=step)
        data = {"gate": "latency", "outcome": "pass", "reason": "", "numbers": {}, "region": "eu-west-1"}
        world.ledger.append(Event(at=world.now(), step="canary@eu-west-1/50", kind="verdict", message="", data=data))
        world.when(step, "waiting", lambda: signs(world, BOB, waiting=step))

    world.when(step, "waiting", more)
    assert (await steps.take(step)).done
    assert ignored(world) == ["it was signed for another evidence"]
    assert [event.message for event in world.recorder.events if event.kind == "allowed"] == [
        "promote@eu-west-1 was approved by bob (SSH key SHA256:x)"
    ]


FROZEN = "\nfreeze: [{from: 2026-01-01, to: 2026-01-01 00:05, reason: new year, lift: {groups: [risk]}}]"


async def test_a_freeze_is_lifted_by_whom_the_spec_names_and_by_nobody_else(tmp_path: Path) -> None:
    world = World(tmp_path, one_region(FROZEN))
    step = "deploy@eu-west-1"

    def everybody() -> None:
        world.answers("freeze", "approved", "ann")
        signs(world, CY, waiting=step)
        signs(world, ANN, waiting=step, evidence="0" * 64)
        signs(world, BOB, waiting=step)

    world.when(step, "waiting", everybody)
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert ignored(world)[:3] == [
        "a name alone is no approval here", "cy is not of risk", "it was signed for another evidence",
    ]  # fmt: skip
    begun = next(event.at for event in world.recorder.events if (event.step, event.kind) == (step, "started"))
    assert begun < datetime(2026, 1, 1, 0, 5, tzinfo=begun.tzinfo)


@pytest.mark.parametrize(
    ("terms", "answers", "why"),
    [
        ("{groups: [risk]}", [("forged", {})], "no key of allowed_signers made the signature"),
        ("{groups: [risk]}", [(ANN, {"hours": -2})], "it was signed at 2025-12-31 22:00:00 UTC, before it was asked"),
        ("{groups: [risk]}", [(ANN, {"delivery": "2"})], "it was signed for another delivery"),
        ("{groups: [risk]}", [(ANN, {"question": "wave@1"})], "it was signed for another question"),
        ("{groups: [risk]}", [(f"{ANN} once t", {"evidence": "0" * 64})], "it was signed for another evidence"),
        ("{groups: [risk], count: 2}", [(ANN, {}), ("ANN of risk", {})], ""),
        (
            "{groups: [risk], count: 2}",
            [(f"{ANN} once t", {}), (f"{ANN} once t", {"reason": "me too"})],
            "its token was used for another answer before",
        ),
        (
            "{groups: [risk]}, not_the_requester: true",
            [("eve of risk", {})],
            "who asked for the delivery does not count",
        ),
    ],
    ids=[
        "wrong key",
        "early",
        "other delivery",
        "other question",
        "other freeze",
        "one person twice",
        "replayed",
        "requester",
    ],
)
async def test_what_does_not_prove_it_lifts_no_freeze(
    tmp_path: Path, terms: str, answers: list[tuple[str, dict[str, Any]]], why: str
) -> None:
    frozen = FROZEN.replace("{groups: [risk]}", terms)
    world = World(tmp_path, one_region(frozen))
    world.asker = FakeProver("eve of risk")
    step = "deploy@eu-west-1"

    def all_say() -> None:
        for credential, changed in answers:
            more = {name: value for name, value in changed.items() if name != "hours"}
            if hours := changed.get("hours"):
                more["at"] = world.now() + timedelta(hours=hours)
            signs(world, credential, waiting=step, **more)

    world.when(step, "waiting", all_say)
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert ignored(world) == ([why] if why else [])
    begun = next(event.at for event in world.recorder.events if (event.step, event.kind) == (step, "started"))
    assert begun >= datetime(2026, 1, 1, 0, 5, tzinfo=begun.tzinfo)


async def test_a_freeze_without_a_word_about_it_is_lifted_by_no_name(tmp_path: Path) -> None:
    line = FROZEN.replace(", lift: {groups: [risk]}", "")
    world = World(tmp_path, one_region(line))
    step = "deploy@eu-west-1"
    world.when(step, "waiting", lambda: world.answers("freeze", "approved", "ann"))
    assert (await world.deliver()).ending is Ending.DELIVERED
    begun = next(event.at for event in world.recorder.events if (event.step, event.kind) == (step, "started"))
    assert begun >= datetime(2026, 1, 1, 0, 5, tzinfo=begun.tzinfo)


@pytest.mark.parametrize(
    ("approval", "complaint"),
    [
        ("{before: finalize, by: name}", "expected 'names'"),
        ("{before: finalize, by: {count: 0}}", "expected"),
        ("{before: finalize, by: {people: [ann]}}", "people"),
        ("{before: finalize, by: names, not_the_requester: true}", "not_the_requester where names are enough"),
    ],
)
def test_what_nobody_could_keep_is_an_error_of_the_spec(approval: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        asking(approval)


def approvers(text: str) -> ApproversSpec:
    return parse_spec(text, ApproversSpec, file="trust.yaml")


KEYS = "allowed_signers: allowed_signers\ngroups: {risk: [ann, bob, ann@corp]}\naliases: {ann: [ann@corp]}"


@pytest.mark.parametrize(
    ("approval", "trust", "complaint"),
    [
        ("{before: finalize}", "{}", r"approvals\[0\].by: nobody can prove who they are; .* `by: names`"),
        ("{before: finalize, by: {groups: [board]}}", KEYS, "board is no group of trust.yaml"),
        ("{before: finalize, by: {groups: [risk], count: 3}}", KEYS, "3 of risk, who are 2"),
        ("{before: finalize, not_the_requester: true}", KEYS, "it is not known who asks; .*--identity"),
    ],
)
def test_a_delivery_that_would_wait_in_vain_is_not_opened(approval: str, trust: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        refuse_unanswerable(asking(approval), approvers(trust), requester_known=False)


def test_a_delivery_that_somebody_can_approve_is_opened() -> None:
    refuse_unanswerable(asking("{before: finalize, by: names}"), approvers("{}"), requester_known=False)
    refuse_unanswerable(asking(TWO), approvers(KEYS), requester_known=True)


def who_asks(name: str) -> Person:
    return Person(identity=name, how="SSH key SHA256:x")


@pytest.mark.parametrize("name", ["ann", "ANN"])
def test_without_the_one_who_asks_a_group_may_be_too_small(name: str) -> None:
    told = rf"approvals\[0\].by.count: 2 of risk, who are 1 without {name}, who asks; have somebody else ask"
    with pytest.raises(UsageError, match=told):
        refuse_too_few_others(asking(TWO), approvers(KEYS), who_asks(name))


def test_enough_others_may_approve() -> None:
    refuse_too_few_others(asking(TWO), approvers(KEYS), who_asks("eve"))
    refuse_too_few_others(asking(TWO.replace("count: 2", "count: 1")), approvers(KEYS), who_asks("ann"))
    refuse_too_few_others(asking(TWO.replace(", not_the_requester: true", "")), approvers(KEYS), who_asks("ann"))
    issuer = "\noidc: [{issuer: 'https://login.example.com', jwks_file: k, groups_claim: groups}]"
    refuse_too_few_others(asking(TWO), approvers(KEYS + issuer), who_asks("ann"))


async def test_a_delivery_of_one_whom_its_approval_needs_fails_before_anything_begins(tmp_path: Path) -> None:
    world = World(tmp_path, asking(TWO))
    world.asker, world.approvers = FakeProver(ANN), approvers(KEYS)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, 2)
    assert "who are 1 without ann, who asks" in result.reason
    assert not [event for event in world.recorder.events if event.kind == "requested"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("oidc: [{issuer: 'http://login.example.com', jwks_file: k}]", "expected an https address without user info"),
        ("oidc: [{issuer: 'https://u:p@login.example.com', jwks_file: k}]", "expected an https address"),
        ("oidc: [{issuer: 'https://login.example.com'}]", "found neither; expected one of `jwks_file` and `jwks_url`"),
        (
            "oidc: [{issuer: 'https://a.example', jwks_file: k}, {issuer: 'https://a.example', jwks_file: k}]",
            r"oidc\[1\]\.issuer: found https://a\.example, as in oidc\[0\]; expected one entry an issuer",
        ),
        ("aliases: {ann: [a], bob: [a]}", "somebody else too"),
    ],
)
def test_a_trust_file_that_cannot_be_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        approvers(line)


def heir(resume: str = "", *, person: str | None = None, by: str | None = None, requester: str | None = None) -> str:
    """What is said to somebody who wants to carry on a delivery; empty when they may."""

    def proven(credential: str | None) -> Any:

        statement = "{}"
        prover = FakeProver(credential).prove(statement) if credential else None
        return FakeIdentities().verify(prover, datetime(2026, 1, 1)) if prover else None

    spec = asking("{before: finalize}", f"\nresume: {resume}" if resume else "").resume
    try:
        refuse_heir(spec, proven(person), by, proven(requester), unproven=False)
    except UsageError as error:
        return str(error)
    return ""


def test_somebody_elses_delivery_is_carried_on_by_those_whom_the_spec_names() -> None:
    assert heir() == ""
    assert "ann (SSH key SHA256:x) has asked for this delivery" in heir(requester=ANN)
    assert heir(requester=ANN, person="ann") == ""
    assert "has asked for this delivery" in heir(requester=ANN, person=BOB)
    assert heir("{by: {groups: [risk]}}", requester=ANN, person=BOB) == ""
    assert "cy is not of risk" in heir("{by: {groups: [risk]}}", requester=ANN, person=CY)
    assert "must be one of risk" in heir("{by: {groups: [risk]}}", requester=ANN, by="bob")
    assert heir("{by: names}", by="bob") == ""
    assert "resuming this delivery takes a name or a proof of who you are" in heir("{by: names}")
