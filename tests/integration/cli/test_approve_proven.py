"""`tidegate approve`, `stage open` and `resume` by people who prove who they are, with MLflow and real keys."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.delivery.identities import a_key_of, allow, fingerprint, now, oidc_issuer
from fakes.terminal import Tidegate

from pipelines.adapters.trust import local_identities
from pipelines.authority.approvals import ApprovalQuestion, Tally, evidence_digest, plan_digest, terms_of
from pipelines.authority.verification import AnswerVerifier
from pipelines.events.history import plan_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import trust_at
from registry.deliveries import MlflowDeliveries
from registry.mlflow_client import embedded_uri
from registry.model import Event
from tidegate.core.spec import load_spec

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
        data = {"approval": "wave@2", "evidence": evidence_digest(plan_of(events), "wave@2", events), "by": "2 of risk"}
        self.append(Event(at=now(), step="deploy@us-east-1", kind="waiting", message="", data=data))

    def append(self, event: Event) -> None:
        MlflowDeliveries(embedded_uri(self.state)).join(self.id, carries=False).append(event)

    def heard(self) -> Tally:
        """What the step that waits makes of what stands in the ledger."""
        events, spec = self.events(), load_spec(self.spec, Delivery)
        plan = plan_of(events)
        question = ApprovalQuestion(
            name="wave@2", terms=terms_of(spec.approvals, "wave@2", plan.steps), delivery=self.id,
            plan=plan_digest(events), evidence=evidence_digest(plan, "wave@2", events), since=now(),
        )  # fmt: skip
        hearing = AnswerVerifier(local_identities(trust_at(self.spec.parent / "trust.yaml")))
        return asyncio.run(hearing.answers(question, events))


@pytest.fixture
def opened(
    tidegate: Tidegate, registered: Path, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Opened:
    monkeypatch.setenv("TIDEGATE_TRUST", str(tmp_path / "trust.yaml"))
    registered.write_text(registered.read_text() + APPROVALS)
    (tmp_path / "trust.yaml").write_text(TRUST)
    keys = {name: a_key_of(name, tmp_path) for name in ("ann", "bob", "cy", "mallory", "late")}
    for name in ("ann", "bob", "cy"):
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
    )  # fmt: skip
    opened.ask()
    data = tidegate("approve", opened.id, "wave@2", "--write-statement", "asked.json", "-o", "json")
    assert json.loads(data.out).items() >= {"question": "wave@2", "version": "2", "answer": None}.items()
    for person in ("ann", "bob"):
        assert not opened.heard().enough
        said = tidegate("approve", opened.id, "wave@2", "--reason", "fine", "--identity", f"ssh:{opened.keys[person]}")
        who = f"{person}@example.com (SSH key {fingerprint(opened.keys[person])})"
        assert (said.code, said.out) == (0, f"approved: wave@2 of {name} 2 by {who}\n")
        assert opened.events()[-1].message == f"{who}: fine"
    heard = opened.heard()
    assert (heard.enough, [each.person.identity for each in heard.heard]) == (
        True, ["ann@example.com", "bob@example.com"],
    )  # fmt: skip


def test_whose_word_would_not_count_is_told_so_and_writes_nothing(tidegate: Tidegate, opened: Opened) -> None:
    opened.ask()
    before = opened.events()
    for words, why in (
        (
            ["--by", "Head of Model Risk"],
            "a name alone is no approval of wave@2, which needs 2 of risk, not the one who",
        ),
        (["--identity", f"ssh:{opened.keys['mallory']}"], "no key of allowed_signers made the signature"),
        (["--identity", f"ssh:{opened.keys['cy']}"], "who asked for the delivery does not count"),
        (["--identity", f"ssh:{opened.keys['ann']}", "--by", "bob"], "--by is for a name without proof"),
        ([], "nothing says who you are"),
    ):
        said = tidegate("approve", opened.id, "wave@2", *words)
        assert (said.code, why in said.err) == (2, True), said.err
    assert opened.events() == before


def test_a_statement_is_signed_where_the_key_is(tidegate: Tidegate, opened: Opened, tmp_path: Path) -> None:
    opened.ask()
    written = tidegate("approve", opened.id, "wave@2", "--reason", "fine", "--write-statement", "said.json")
    assert (written.code, written.out.startswith("digest: ")) == (0, True)
    key = str(opened.keys["ann"])
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "tidegate", "-f", key, "said.json"], check=True)
    back = ["approve", opened.id, "wave@2", "--statement", "said.json", "--signature", "said.json.sig"]
    assert tidegate(*back).code == 0
    assert [str(each).endswith(": fine") for each in opened.heard().heard] == [True]
    (tmp_path / "said.json").write_text((tmp_path / "said.json").read_text().replace("fine", "superb"))
    altered = tidegate(*back)
    assert (altered.code, "this answer would not count: the signature is not that of" in altered.err) == (2, True)


def test_a_token_for_the_statement_is_as_good_as_a_key(tidegate: Tidegate, opened: Opened, tmp_path: Path) -> None:
    with oidc_issuer("ES256") as issuer:
        oidc = f"  oidc: [{{issuer: '{issuer.url}', jwks_url: '{issuer.url}/jwks', identity_claim: email}}]\n"
        (tmp_path / "trust.yaml").write_text(TRUST + oidc)
        opened.ask()
        (tmp_path / "token").write_text(issuer.token(now()))
        unbound = tidegate("approve", opened.id, "wave@2", "--identity", "oidc:token")
        assert (unbound.code, "was not issued for this statement" in unbound.err) == (2, True)
        digest = tidegate("approve", opened.id, "wave@2", "--write-statement", "said.json").out.split()[1]
        (tmp_path / "token").write_text(issuer.token(now(), nonce=digest))
        said = tidegate("approve", opened.id, "wave@2", "--statement", "said.json", "--identity", "oidc:token")
        assert (said.code, said.err) == (0, "")
        assert said.out.endswith(f"by ann@example.com (OIDC issuer {issuer.url})\n")
        again = tidegate("approve", opened.id, "wave@2", "--reason", "once more", "--identity", "oidc:token")
        assert (again.code, "was not issued for this statement" in again.err) == (2, True)
        assert [each.person.identity for each in opened.heard().heard] == ["ann@example.com"]


@pytest.mark.long
def test_a_command_gets_the_token_for_the_statement(tidegate: Tidegate, opened: Opened, tmp_path: Path) -> None:
    opened.ask()
    command = "sh -c 'echo {digest} > asked; exit 1'"
    said = tidegate("approve", opened.id, "wave@2", "--identity", f"oidc-cmd:{command}")
    assert (said.code, "no token; it ended with 1" in said.err) == (2, True)
    assert len((tmp_path / "asked").read_text().strip()) == 64


def test_a_freeze_is_lifted_by_a_key_and_by_no_name(tidegate: Tidegate, opened: Opened) -> None:
    named = tidegate("approve", opened.id, "freeze", "--by", "ann")
    assert (named.code, "a name alone is no approval of freeze, which needs one of risk" in named.err) == (2, True)
    assert tidegate("approve", opened.id, "freeze", "--identity", f"ssh:{opened.keys['ann']}").code == 0


def test_a_delivery_whose_requester_must_be_known_is_not_opened_by_nobody(
    tidegate: Tidegate, registered: Path, tmp_path: Path
) -> None:
    registered.write_text(registered.read_text() + APPROVALS)
    for command in (["stage", "open", "delivery.yaml"], ["deliver", "delivery.yaml"]):
        said = tidegate(*command)
        assert (said.code, "nobody can prove who they are; name `approvers` in trust.yaml" in said.err) == (2, True)
        (tmp_path / "operator.yaml").write_text(TRUST)
        said = tidegate(*command, "--trust", "operator.yaml")
        assert (said.code, "not_the_requester: it is not known who asks" in said.err) == (2, True)


def test_somebody_elses_delivery_is_resumed_by_those_who_may(
    tidegate: Tidegate, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = ["resume", opened.id]
    for words, why in (
        ([], "the one who resumes this delivery must be one of on-call; prove who you are"),
        (["--by", "bob"], "must be one of on-call"),
        (["--identity", f"ssh:{opened.keys['ann']}"], "ann@example.com is not of on-call"),
        (["--identity", f"ssh:{opened.keys['mallory']}"], "no key of allowed_signers made the signature"),
        (["--identity", f"ssh:{opened.keys['late']}"], "no key of allowed_signers made the signature"),
    ):
        said = tidegate(*resume, *words)
        assert (said.code, why in said.err) == (2, True), said.err
    # They may: what stops them is that it lives.
    for person in ("bob", "cy"):
        said = tidegate(*resume, "--identity", f"ssh:{opened.keys[person]}")
        assert (said.code, f"delivery {opened.id} of" in said.err) == (2, True), said.err


@pytest.mark.parametrize("binding", ["statement", "lifetime"])
def test_a_token_that_was_used_or_has_ended_or_is_for_something_else_resumes_nothing(
    tidegate: Tidegate, opened: Opened, tmp_path: Path, binding: str
) -> None:
    with oidc_issuer("ES256") as issuer:
        oidc = f"{{issuer: '{issuer.url}', jwks_url: '{issuer.url}/jwks', identity_claim: email, binding: {binding}}}"
        (tmp_path / "trust.yaml").write_text(f"{TRUST}  oidc: [{oidc}]\n")
        opened.ask()
        digest = tidegate("approve", opened.id, "wave@2", "--write-statement", "said.json").out.split()[1]

        def resumed(token: str) -> str:
            (tmp_path / "token").write_text(token)
            said = tidegate("resume", opened.id, "--identity", "oidc:token")
            assert said.code == 2, said.err
            return said.err

        ended = issuer.token(now() - timedelta(hours=1), email="bob@example.com", nonce=digest)
        if binding == "lifetime":
            assert "the token ended at" in resumed(ended)
        used = issuer.token(now(), email="bob@example.com", nonce=digest if binding == "statement" else None)
        (tmp_path / "token").write_text(used)
        words = ["--statement", "said.json"] if binding == "statement" else []
        assert tidegate("approve", opened.id, "wave@2", *words, "--identity", "oidc:token").code == 0
        assert {
            "statement": "the token was not issued for this statement",
            "lifetime": "its token was used for another answer before",
        }[binding] in resumed(used)
        # Bob may, with a token of his own; what stops him is that it lives.
        if binding == "lifetime":
            assert f"delivery {opened.id} of" in resumed(issuer.token(now(), email="bob@example.com", jti="2"))


def test_a_trust_file_that_nobody_names_proves_nobody(
    tidegate: Tidegate, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the working folder either, which may be a pull request's."""
    opened.ask()
    monkeypatch.delenv("TIDEGATE_TRUST")
    said = tidegate("approve", opened.id, "wave@2", "--identity", f"ssh:{opened.keys['mallory']}")
    assert (said.code, "not checked here" in said.out) == (0, True)
    assert "the step that waits checks who this was" in said.err
