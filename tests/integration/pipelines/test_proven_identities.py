"""Proofs of identity with the real `ssh-keygen`, and with tokens that an issuer on the loopback has signed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from fakes.delivery.identities import OidcIssuer, a_key, a_key_of, allow, fingerprint, now, oidc_issuer

from pipelines.adapters.identities import ProvenIdentities, sign
from pipelines.spec.trust import ApproversSpec
from pipelines.statements import Person, Proof, Statement, Unproven, digest_of
from tidegate.core.errors import OutsideError, UsageError

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)


def statement(at: datetime = AT, reason: str = "looks fine") -> str:
    return Statement(
        says="approve", question="wave@2", delivery="1", model="support-llm", version="2", plan="p", evidence="e",
        reason=reason, at=at,
    ).text  # fmt: skip


class Signers:
    """Ann has a key that is allowed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.allowed = folder, folder / "allowed_signers"
        self.ann, self.mallory = a_key_of("ann", folder), a_key_of("mallory", folder)

    def who(self, text: str, signature: str, **more: Any) -> Person:
        spec = ApproversSpec.model_validate({"allowed_signers": self.allowed.name} | more)
        proof = Proof(kind="ssh", statement=text, credential=signature)
        return ProvenIdentities(spec, self.folder).verify(proof, AT)


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    return Signers(tmp_path)


def test_a_signature_says_who_it_was_by_the_key(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann, 'namespaces="tidegate"')
    found = signers.who(statement(), sign(statement(), signers.ann), groups={"risk": ("ann@example.com",)})
    assert str(found) == f"ann@example.com (SSH key {fingerprint(signers.ann)})"
    assert (found.groups, found.listed) == (frozenset({"risk"}), True)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    begun = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    said = dict(re.findall(r"^(SSH_\w+)=([^;]+);", begun, re.MULTILINE))
    monkeypatch.setenv("SSH_AUTH_SOCK", said["SSH_AUTH_SOCK"])
    yield
    os.kill(int(said["SSH_AGENT_PID"]), signal.SIGTERM)


@pytest.mark.usefixtures("agent")
def test_a_public_key_signs_with_the_agent_that_has_the_private_one(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann)
    subprocess.run(["ssh-add", "-q", str(signers.ann)], check=True)
    signers.ann.unlink()
    assert signers.who(statement(), sign(statement(), Path(f"{signers.ann}.pub"))).identity == "ann@example.com"
    subprocess.run(["ssh-add", "-q", "-D"], check=True)
    with pytest.raises(UsageError, match=r"ann\.pub: ssh-keygen did not sign: ") as refused:
        sign(statement(), Path(f"{signers.ann}.pub"))
    assert "the agent" in str(refused.value.hint)


def test_a_key_that_nobody_allowed_proves_nothing(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann)
    with pytest.raises(Unproven, match=r"no key of allowed_signers made the signature: No principal matched"):
        signers.who(statement(), sign(statement(), signers.mallory))


def test_a_signature_is_for_one_statement(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann)
    with pytest.raises(Unproven, match=r"not that of ann@example\.com on this statement"):
        signers.who(statement(reason="altered"), sign(statement(), signers.ann))


@pytest.mark.parametrize("options", ['valid-before="20260601"', 'valid-after="20260602"'])
def test_a_key_counts_while_it_is_valid(signers: Signers, options: str) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann, options)
    with pytest.raises(Unproven, match=r"key has expired|key is not yet valid"):
        signers.who(statement(), sign(statement(), signers.ann))


def test_a_signature_is_judged_by_the_time_at_which_it_was_made(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann, 'valid-before="20260602"')
    assert signers.who(statement(), sign(statement(), signers.ann)).identity == "ann@example.com"
    later = statement(AT + timedelta(days=2))
    with pytest.raises(Unproven, match="key has expired"):
        signers.who(later, sign(later, signers.ann))


def test_a_signature_for_something_else_is_no_approval(signers: Signers, tmp_path: Path) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann)
    words = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(signers.ann)]
    of_git = subprocess.run(words, input=statement(), capture_output=True, text=True, check=True).stdout
    with pytest.raises(Unproven, match="namespace does not match"):
        signers.who(statement(), of_git)
    other = tmp_path / "other"
    other.mkdir()
    only_git = Signers(other)
    allow(only_git.allowed, "ann@example.com", only_git.ann, 'namespaces="git"')
    with pytest.raises(Unproven):
        only_git.who(statement(), sign(statement(), only_git.ann))


def test_one_key_is_one_person_under_all_its_names(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com,ann@corp", signers.ann)
    allow(signers.allowed, "bob@example.com", signers.ann)
    assert signers.who(statement(), sign(statement(), signers.ann)).identity == "ann@example.com"
    aliases = {"ann": ("ann@example.com",)}
    assert signers.who(statement(), sign(statement(), signers.ann), aliases=aliases).identity == "ann"


def test_a_pattern_names_nobody(signers: Signers) -> None:
    allow(signers.allowed, "*@example.com", signers.ann)
    with pytest.raises(Unproven, match=r"has the pattern \*@example.com"):
        signers.who(statement(), sign(statement(), signers.ann))


def test_what_is_no_signature_proves_nothing(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com", signers.ann)
    with pytest.raises(Unproven):
        signers.who(statement(), "-----BEGIN SSH SIGNATURE-----\nno\n-----END SSH SIGNATURE-----\n")


def test_files_that_are_not_there_are_told(signers: Signers, tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="the file of allowed signers cannot be read"):
        signers.who(statement(), sign(statement(), signers.ann))
    with pytest.raises(UsageError, match="there is no such key"):
        sign(statement(), tmp_path / "none")


@pytest.fixture(params=["RS256", "ES256"])
def issuer(request: pytest.FixtureRequest) -> Iterator[OidcIssuer]:
    with oidc_issuer(request.param) as made:
        yield made


def told(issuer: OidcIssuer, token: str, text: str, *, given: datetime | None = None, **more: Any) -> Person:
    usual = {"issuer": issuer.url, "jwks_url": f"{issuer.url}/jwks", "identity_claim": "email"}
    spec = ApproversSpec.model_validate({"oidc": ({**usual, **more},)})
    proof = Proof(kind="oidc", statement=text, credential=token)
    return ProvenIdentities(spec, Path()).verify(proof, given or now())


def test_a_token_for_this_very_statement_says_who_it_was(issuer: OidcIssuer) -> None:
    text = statement(now())
    for bound in (
        {"nonce": digest_of(text)},
        {"aud": f"tidegate:{digest_of(text)}"},
        {"aud": ["x", f"tidegate:{digest_of(text)}"]},
    ):
        found = told(issuer, issuer.token(now(), **bound), text)
        assert (str(found), found.listed, found.once) == (f"ann@example.com (OIDC issuer {issuer.url})", False, False)


def test_the_groups_of_a_token_are_believed_where_the_trust_file_says_so(issuer: OidcIssuer) -> None:
    text = statement(now())
    token = issuer.token(now(), nonce=digest_of(text), groups=["risk", "all"])
    assert told(issuer, token, text).groups == frozenset()
    found = told(issuer, token, text, groups_claim="groups")
    assert (found.groups, found.listed) == (frozenset({"risk", "all"}), True)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "other"}, "the token is for other; expected tidegate"),
        ({"aud": f"other:{'0' * 64}"}, "expected tidegate"),
        ({"nonce": "0" * 64}, "the token was not issued for this statement"),
        ({"nonce": None}, "the token was not issued for this statement"),
        ({"seconds": -1}, "the token ended at .* before it was given"),
        ({"nbf": 4102444800}, "the token begins at 2100-01-01 .* after it was given"),
        ({"email": None}, "no claim email that names somebody"),
        *(({"email_verified": said}, "has not verified ann@example.com") for said in (False, "false", "true", 0, None)),
        ({"exp": None}, 'the token proves nothing: .*"exp" claim'),
        ({"exp": "never"}, "the token"),
    ],
)
def test_a_token_that_is_not_for_this_proves_nothing(issuer: OidcIssuer, claims: dict[str, Any], why: str) -> None:
    text = statement(now())
    with pytest.raises(Unproven, match=why):
        told(issuer, issuer.token(now(), **({"nonce": digest_of(text)} | claims)), text)


def test_a_token_that_the_issuer_did_not_sign_proves_nothing(issuer: OidcIssuer) -> None:
    text = statement(now())
    forged = issuer.token(now(), nonce=digest_of(text), key=a_key(issuer.algorithm))
    with pytest.raises(Unproven, match="signature verification failed"):
        told(issuer, forged, text)
    claims = jwt.decode(forged, options={"verify_signature": False})
    for algorithm, key in (("HS256", "a secret that is thirty-two bytes long"), ("none", "")):
        with pytest.raises(Unproven):
            told(issuer, jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "one"}), text)
    with pytest.raises(Unproven, match="is no OIDC token"):
        told(issuer, "no.token", text)


def test_a_token_of_another_issuer_proves_nothing(issuer: OidcIssuer) -> None:
    text = statement(now())
    with pytest.raises(Unproven, match=r"names no OIDC issuer 'https://evil\.example\.com'"):
        told(issuer, issuer.token(now(), nonce=digest_of(text), iss="https://evil.example.com"), text)


def test_a_token_is_judged_by_when_it_was_given(issuer: OidcIssuer) -> None:
    text = statement(now() - timedelta(hours=1))
    token = issuer.token(now() - timedelta(minutes=50), nonce=digest_of(text))
    assert told(issuer, token, text, given=now() - timedelta(minutes=49)).identity == "ann@example.com"
    with pytest.raises(Unproven, match="before it was given"):
        told(issuer, token, text)


def test_a_token_that_is_bound_to_nothing_counts_shortly_where_the_trust_file_says_so(issuer: OidcIssuer) -> None:
    text = statement(now())
    token = issuer.token(now() - timedelta(minutes=5), seconds=86400)
    found = told(issuer, token, text, binding="lifetime")
    assert found.once
    for at in (now() - timedelta(hours=1), now() + timedelta(hours=1)):
        with pytest.raises(Unproven, match="was said outside"):
            told(issuer, token, statement(at), binding="lifetime", given=at + timedelta(hours=2))


def test_keys_are_read_from_a_file_too(issuer: OidcIssuer, tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    text = statement(now())
    token = issuer.token(now(), nonce=digest_of(text))
    file = str(tmp_path / "jwks.json")
    assert told(issuer, token, text, jwks_url=None, jwks_file=file).identity == "ann@example.com"
    issuer.key = a_key(issuer.algorithm)
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    with pytest.raises(Unproven, match="signature verification failed"):
        told(issuer, token, text, jwks_url=None, jwks_file=file)
    (tmp_path / "jwks.json").write_text("no keys")
    with pytest.raises(OutsideError, match="not a file of keys"):
        told(issuer, token, text, jwks_url=None, jwks_file=file)


def test_keys_that_cannot_be_had_are_no_reason_to_refuse_a_person_for_good() -> None:
    with oidc_issuer() as issuer:
        pass
    text = statement(now())
    with pytest.raises(OutsideError, match="cannot fetch the keys of the issuer"):
        told(issuer, issuer.token(now(), nonce=digest_of(text)), text)
