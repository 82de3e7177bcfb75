"""`tidegate approve`, `stage open` and `resume` by people who prove who they are, with MLflow and real keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.delivery.identities import a_key_of, allow, fingerprint, now
from fakes.terminal import Tidegate

from pipelines.authority.answering import AnswerVerifier, Speaker, Tally
from pipelines.authority.approvals import approval
from pipelines.authority.identities import ProvenIdentities, sign
from pipelines.events.state import plan_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust, Trusted
from pipelines.statements import Proof
from registry.deliveries import MlflowDeliveries
from registry.model import Event
from registry.ports import embedded_uri
from tidegate.core.spec import load_spec
from tidegate.delivering import take_over
from tidegate.surroundings import Surroundings

pytestmark = pytest.mark.slow(reason="a process for each approval and each step")

APPROVALS = """
approvals: [{before: wave, wave: 2, by: {groups: [risk], count: 2}, not_the_requester: true}]
freeze: [{from: 2026-01-01, to: 2096-01-01, reason: audit, lift: {groups: [risk]}}]
resume: {by: {groups: [on-call]}}
"""
TRUST = """
approvers:
  allowed_signers: allowed_signers
  groups: {risk: [ann@example.com, bob@example.com, cy@example.com], on-call: [bob@example.com]}
"""


@dataclass(frozen=True)
class Opened:
    """A delivery that cy has asked for, with a key."""

    id: str
    spec: Path
    state: Path
    keys: dict[str, Path]

    def events(self) -> list[Event]:
        return MlflowDeliveries(embedded_uri(self.state)).events(self.id)

    def ask(self) -> None:
        """As the step does that waits."""
        events = self.events()
        question = approval(load_spec(self.spec, Delivery), plan_of(events), self.id, events, "wave@2")
        data = {"approval": "wave@2", "evidence": question.evidence, "by": question.asked_of}
        self.append(Event(at=now(), step="deploy@us-east-1", kind="waiting", message="", data=data))

    def append(self, event: Event) -> None:
        MlflowDeliveries(embedded_uri(self.state)).join(self.id, carries=False).append(event)

    def heard(self) -> Tally:
        """What the step that waits makes of what stands in the ledger."""
        events = self.events()
        question = approval(load_spec(self.spec, Delivery), plan_of(events), self.id, events, "wave@2")
        trusted = Trusted(load_spec(self.spec.parent / "trust.yaml", Trust), self.spec.parent)
        identities = ProvenIdentities(trusted.trust.approvers, trusted.folder)
        return AnswerVerifier(identities).tally(question, events)


@pytest.fixture
def opened(
    tidegate: Tidegate, registered: Path, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Opened:
    monkeypatch.setenv("TIDEGATE_TRUST", str(tmp_path / "trust.yaml"))
    registered.write_text(registered.read_text() + APPROVALS)
    (tmp_path / "trust.yaml").write_text(TRUST)
    keys = {name: a_key_of(name, tmp_path) for name in ("ann", "bob", "cy", "dan", "mallory", "late")}
    for name in ("ann", "bob", "cy", "dan"):
        allow(tmp_path / "allowed_signers", f"{name}@example.com", keys[name], 'namespaces="tidegate"')
    allow(tmp_path / "allowed_signers", "bob@example.com", keys["late"], 'valid-before="20251231Z"')
    said = tidegate("stage", "open", "delivery.yaml", "--identity", f"ssh:{keys['cy']}")
    assert (said.code, said.err) == (0, "")
    return Opened(said.out.strip(), registered, state, keys)


def test_two_people_approve_with_their_keys(tidegate: Tidegate, opened: Opened, name: str) -> None:
    early = tidegate("approve", opened.id[:8], "wave@2", "--identity", f"ssh:{opened.keys['ann']}")
    assert (early.code, early.err) == (
        2,
        "tidegate: the delivery does not ask for wave@2 yet; "
        "answer once it waits: what you decide on does not exist before\n",
    )
    opened.ask()
    for person, reads in (("ann", ()), ("bob", ("-o", "json"))):
        assert not opened.heard().enough
        words = ("--reason", "fine", "--identity", f"ssh:{opened.keys[person]}", *reads)
        said = tidegate("approve", opened.id, "wave@2", *words)
        who = f"{person}@example.com (SSH key {fingerprint(opened.keys[person])}): fine"
        assert (said.code, opened.events()[-1].message) == (0, who)
        if reads:
            assert said.json == {"delivery": opened.id, "question": "wave@2", "model": name, "version": "2",
                                 "answer": "approved", "by": "bob@example.com", "reason": "fine"}  # fmt: skip
        else:
            assert said.out == f"approved: wave@2 of {name} 2 by {who}\n"
    assert opened.heard().enough


@pytest.mark.parametrize(("command", "takes"), [
    (("approve", "wave@2"), "wave@2 takes 2 of risk, not the one who asked for the delivery"),
    (("approve", "freeze"), "freeze takes one of risk"),
    (("resume",), "resume takes one of on-call"),
])  # fmt: skip
def test_whose_word_would_not_count_is_told_so_and_writes_nothing(
    tidegate: Tidegate, opened: Opened, tmp_path: Path, command: tuple[str, ...], takes: str
) -> None:
    opened.ask()
    before = opened.events()
    for words, why in (
        (["--by", "Head of Model Risk"], "this would not count: a name alone is not enough here"),
        (["--identity", f"ssh:{opened.keys['mallory']}"], "no key of allowed_signers made the signature"),
        (["--identity", f"ssh:{opened.keys['late']}"], "no key of allowed_signers made the signature"),
        (["--identity", f"ssh:{opened.keys['dan']}"], "dan@example.com is not of "),
        ([], "nothing says who you are"),
    ):
        said = tidegate(command[0], opened.id, *command[1:], *words)
        assert (said.code, why in said.err, takes in said.err) == (2, True, True), said.err
    said = tidegate(command[0], opened.id, *command[1:], "--identity", f"ssh:{opened.keys['ann']}", "--by", "bob")
    assert (said.code, "--by is for a name without proof" in said.err) == (2, True)
    assert opened.events() == before


def test_a_resumption_that_is_overtaken_while_a_person_signs_is_signed_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, signed = Surroundings(opened.state, None), []
    monkeypatch.setattr(MlflowDeliveries, "take_over", lambda self, delivery, **_: self.join(delivery))

    def signs(statement: str) -> Proof:
        signed.append(statement)
        if len(signed) == 1:
            opened.ask()
        return sign(statement, opened.keys["bob"])

    ledger = take_over(at, at.deliveries(), opened.id, Speaker(prover=signs))
    assert len(signed) == 2
    resume = load_spec(opened.spec, Delivery).resume
    assert [event.kind for event in ledger.recorded()][-2:] == ["waiting", "resumed"]
    AnswerVerifier(at.identities).refuse_unproven_heir(resume, opened.id, ledger.recorded())


def test_a_command_gets_the_token_for_the_statement(tidegate: Tidegate, opened: Opened, tmp_path: Path) -> None:
    opened.ask()
    command = "sh -c 'echo {digest} > asked; exit 1'"
    said = tidegate("approve", opened.id, "wave@2", "--identity", f"oidc-cmd:{command}")
    assert (said.code, "no token; it ended with 1" in said.err) == (2, True)
    assert len((tmp_path / "asked").read_text().strip()) == 64


def test_a_trust_file_that_nobody_names_proves_nobody(
    tidegate: Tidegate, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the working folder either, which may be a pull request's."""
    opened.ask()
    monkeypatch.delenv("TIDEGATE_TRUST")
    said = tidegate("approve", opened.id, "wave@2", "--identity", f"ssh:{opened.keys['mallory']}")
    assert (said.code, "not checked here" in said.out) == (0, True)
    assert "the step that waits checks who this was" in said.err
