"""Who may decide, by real keys and tokens: every way to cheat, for every kind of answer, with the same words for all.

A delivery asks for an approval, or is frozen, or is to be carried on by somebody else. `mallory` has a key and an
issuer of her own, nobody's; `ann`, `bob` and `cy` are people of the group that may; `cy` asked for the delivery.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alike import long
from fakes.delivery.identities import OidcIssuer, a_key, a_key_of, allow, oidc_issuer
from fakes.delivery.world import CHALLENGER, World, a_spec

from pipelines.adapters.identities import ProvenIdentities, sign
from pipelines.authority.approvals import FREEZE, plan_digest
from pipelines.events.payloads import Waiting
from pipelines.model import Ending
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Proof, Statement, digest_of
from registry.model import Event
from tidegate.testing import FakeClock

PEOPLE = ("ann", "bob", "cy")
WHO = "by: {groups: [risk], count: 2}, not_the_requester: true"
APPROVAL = f"approvals: [{{before: wave, wave: 2, within: 2m, {WHO}}}]"
LIFT = "lift: {groups: [risk], count: 2}, not_the_requester: true"
FROZEN = f"freeze: [{{from: 2026-01-01, to: 2026-01-01 00:10, reason: new year, {LIFT}}}]"
"""It ends by itself; a step that begins before was let go on."""
ANSWERS = {"approve": "deploy@us-east-1", "refuse": "deploy@us-east-1", "lift": "deploy@eu-west-1"}
"""Kinds of answer that a step waits for, and which step that is."""
MEANS = ("ssh", "oidc", "oidc-lifetime")


class Means:
    """How people prove who they are: keys, tokens for one statement, or tokens for whatever is said soon."""

    def __init__(self, kind: str, folder: Path, issuer: OidcIssuer, clock: FakeClock) -> None:
        self.kind, self._folder, self._issuer, self._clock = kind, folder, issuer, clock
        self._numbers = count()
        self.keys = {name: folder / name for name in (*PEOPLE, "mallory", "late")}

    @property
    def identities(self) -> ProvenIdentities:
        """As trust.yaml has them."""
        people = [f"{name}@example.com" for name in (*PEOPLE, "late")]
        trusted: dict[str, Any] = {"groups": {"risk": people}, "aliases": {"ann@example.com": ["ANN@corp.example"]}}
        if self.kind == "ssh":
            trusted |= {"allowed_signers": "allowed_signers"}
        else:
            url = self._issuer.url
            binding = "statement" if self.kind == "oidc" else "lifetime"
            trusted |= {"oidc": ({"issuer": url, "jwks_url": f"{url}/jwks", "identity_claim": "email",
                                  "binding": binding},)}  # fmt: skip
        return ProvenIdentities(ApproversSpec.model_validate(trusted), self._folder)

    def prove(self, name: str, statement: str) -> Proof:
        """As that person; `mallory` with a key that is nobody's, `late` with what has ended."""
        if self.kind == "ssh":
            return Proof(kind="ssh", statement=statement, credential=sign(statement, self.keys[name]))
        return Proof(kind="oidc", statement=statement, credential=self.token(name, statement))

    def token(self, name: str, statement: str) -> str:
        """For that statement, or for anything."""
        at, claims = self._clock.now(), {"email": f"{name}@example.com", "jti": str(next(self._numbers))}
        if self.kind == "oidc":
            claims["nonce"] = digest_of(statement)
        if name == "late":
            at -= timedelta(hours=1)
        key = a_key(self._issuer.algorithm) if name == "mallory" else None
        return self._issuer.token(at, key=key, **claims)


class By:
    """`Prover` of one person."""

    def __init__(self, means: Means, name: str) -> None:
        self._means, self._name = means, name

    def prove(self, statement: str) -> Proof:
        return self._means.prove(self._name, statement)


class Scene:
    """A delivery that cy has asked for, which waits for one kind of answer."""

    def __init__(self, answer: str, means: Means, folder: Path, clock: FakeClock) -> None:
        self.answer, self.means, self.step = answer, means, ANSWERS[answer]
        more = FROZEN if answer == "lift" else APPROVAL
        self.world = World(folder, a_spec(traffic=f"traffic: {{requests_per_second: 200}}\n{more}"), clock=clock)
        self.world.identities = means.identities  # type: ignore[assignment]  # the real ones
        self.world.asker = By(means, "cy")

    def statement(self, **changed: Any) -> str:
        """What there is to sign of what was asked last."""
        asked = [event for event in self.world.ledger.events if (event.step, event.kind) == (self.step, "waiting")][-1]
        what = Waiting.model_validate(asked.data)
        usual = {
            "says": "refuse" if self.answer == "refuse" else "approve", "question": what.approval or FREEZE,
            "delivery": self.world.ledger.delivery, "model": "support-llm", "version": CHALLENGER,
            "plan": plan_digest(self.world.ledger.events), "evidence": what.evidence, "at": self.world.now(),
            "reason": "because",
        }  # fmt: skip
        return Statement.model_validate(usual | changed).text

    def says(self, proof: Proof | None, by: str = "Head of Model Risk") -> None:
        """Write an answer into the ledger, as anybody may who reaches it."""
        question = FREEZE if self.answer == "lift" else "wave@2"
        kind = "refused" if self.answer == "refuse" else "approved"
        data = {"by": by, "reason": "because"} | ({"proof": proof.model_dump()} if proof else {})
        self.world.appends(Event(at=self.world.now(), step=question, kind=kind, message=by, data=data))

    async def told(self, *words: Callable[[], None]) -> tuple[bool, list[str]]:
        """Whether what was said had its effect, and why words did not count."""
        self.world.when(self.step, "waiting", lambda: [word() for word in words])
        result = await self.world.deliver()
        if self.answer == "lift":
            events = self.world.recorder.events
            begun = next(each.at for each in events if (each.step, each.kind) == (self.step, "started"))
            effect = begun < datetime(2026, 1, 1, 0, 10, tzinfo=begun.tzinfo)
        else:
            effect = result.ending is (Ending.ROLLED_BACK if self.answer == "refuse" else Ending.DELIVERED)
            assert effect or result.ending is Ending.INCONCLUSIVE, result
        said = [event.message for event in self.world.recorder.events if event.kind == "ignored"]
        return effect, [message.partition(" does not count: ")[2] for message in said]


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer("ES256") as made:
        yield made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everybody's keys lie, and the file that says whose they are."""
    folder = tmp_path_factory.mktemp("keys")
    for name in PEOPLE:
        allow(folder / "allowed_signers", f"{name}@example.com", a_key_of(name, folder), 'namespaces="tidegate"')
    allow(folder / "allowed_signers", "late@example.com", a_key_of("late", folder), 'valid-before="20251231Z"')
    a_key_of("mallory", folder)
    return folder


@pytest.fixture(params=["ssh", "oidc", long("oidc-lifetime")])
def means(request: pytest.FixtureRequest, keys: Path, issuer: OidcIssuer) -> Means:
    return Means(request.param, keys, issuer, FakeClock())


@pytest.fixture(params=["approve", long("refuse"), long("lift")])
def scene(request: pytest.FixtureRequest, tmp_path: Path, means: Means) -> Scene:
    return Scene(request.param, means, tmp_path, means._clock)


def wrong_key(scene: Scene) -> None:
    scene.says(scene.means.prove("mallory", scene.statement()))


def expired(scene: Scene) -> None:
    scene.says(scene.means.prove("late", scene.statement()))


def of_another_delivery(scene: Scene) -> None:
    scene.says(scene.means.prove("ann", scene.statement(delivery="2")))


def of_other_evidence(scene: Scene) -> None:
    scene.says(scene.means.prove("ann", scene.statement(evidence="0" * 64)))


def altered(scene: Scene) -> None:
    proof = scene.means.prove("ann", scene.statement(evidence="0" * 64))
    scene.says(proof.model_copy(update={"statement": scene.statement()}))


def by_name(scene: Scene) -> None:
    scene.says(None)


WHY: dict[Callable[[Scene], None], dict[str, str]] = {
    wrong_key: {"ssh": "no key of allowed_signers made the signature", "oidc": "the token proves nothing",
                "oidc-lifetime": "the token proves nothing"},
    expired: {"ssh": "no key of allowed_signers made the signature", "oidc": "the token ended at",
              "oidc-lifetime": "the token ended at"},
    of_another_delivery: dict.fromkeys(MEANS, "it was signed for another delivery"),
    of_other_evidence: dict.fromkeys(MEANS, "it was signed for another evidence"),
    by_name: dict.fromkeys(MEANS, "a name alone is no approval here"),
}  # fmt: skip


@pytest.mark.parametrize("cheats", WHY, ids=lambda each: each.__name__)
async def test_who_cheats_decides_nothing(scene: Scene, cheats: Callable[[Scene], None]) -> None:
    effect, why = await scene.told(lambda: cheats(scene))
    assert not effect
    assert why[0].startswith(WHY[cheats][scene.means.kind])


@pytest.mark.parametrize("kind", ["ssh", "oidc"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_was_signed_is_what_counts(
    answer: str, kind: str, tmp_path: Path, keys: Path, issuer: OidcIssuer
) -> None:
    """A token that is bound to nothing proves no statement, and says so in docs/guides/approvals.md."""
    means = Means(kind, keys, issuer, FakeClock())
    scene = Scene(answer, means, tmp_path, means._clock)
    effect, why = await scene.told(lambda: altered(scene))
    assert not effect
    expected = {"ssh": "the signature is not that of", "oidc": "the token was not issued for this statement"}
    assert why[0].startswith(expected[kind])


async def test_one_person_twice_is_one_person(scene: Scene) -> None:
    def twice() -> None:
        scene.says(scene.means.prove("ann", scene.statement()))
        scene.says(scene.means.prove("ann", scene.statement(reason="and again")))

    effect, _ = await scene.told(twice)
    # One refusal by somebody who may is enough; it takes two to let something happen.
    assert effect is (scene.answer == "refuse")


async def test_no_matter_who_asked_for_the_delivery_lets_nothing_happen(scene: Scene) -> None:
    def both() -> None:
        scene.says(scene.means.prove("cy", scene.statement()))
        if scene.answer != "refuse":
            scene.says(scene.means.prove("ann", scene.statement()))

    effect, why = await scene.told(both)
    # They may take back what they asked for.
    refuses = scene.answer == "refuse"
    assert (effect, why) == (refuses, [] if refuses else ["who asked for the delivery does not count"])


async def test_two_people_decide(scene: Scene) -> None:
    def both() -> None:
        for name in ("ann", "bob"):
            scene.says(scene.means.prove(name, scene.statement()))

    assert await scene.told(both) == (True, [])


async def test_an_answer_that_is_copied_counts_once(scene: Scene) -> None:
    def copied() -> None:
        proof = scene.means.prove("ann", scene.statement())
        scene.says(proof)
        scene.says(proof, by="somebody else")

    effect, _ = await scene.told(copied)
    assert effect is (scene.answer == "refuse")


async def test_a_token_that_is_read_in_the_ledger_counts_for_nothing_else(
    tmp_path: Path, keys: Path, issuer: OidcIssuer
) -> None:
    """Also where another question is asked, and where its signature is written in another way."""
    means = Means("oidc-lifetime", keys, issuer, FakeClock())
    scene = Scene("approve", means, tmp_path, means._clock)
    token = means.token("ann", "")

    def theft() -> None:
        scene.says(means.prove("bob", scene.statement()))
        lifted = scene.statement(question=FREEZE)
        data = {"by": "ann", "proof": Proof(kind="oidc", statement=lifted, credential=token).model_dump()}
        scene.world.appends(Event(at=scene.world.now(), step=FREEZE, kind="approved", message="ann", data=data))
        for credential in (token, rewritten(token)):
            scene.says(Proof(kind="oidc", statement=scene.statement(), credential=credential))

    effect, why = await scene.told(theft)
    assert (effect, why) == (False, ["its token was used for another answer before"] * 2)


def rewritten(token: str) -> str:
    """The same token, its ECDSA signature (r, s) as (r, n - s)."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    signed, _, signature = token.rpartition(".")
    pair = urlsafe_b64decode(signature + "==")
    other = pair[:32] + (order - int.from_bytes(pair[32:])).to_bytes(32)
    return f"{signed}.{urlsafe_b64encode(other).rstrip(b'=').decode()}"
