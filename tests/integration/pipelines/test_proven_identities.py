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

from pipelines.authority.identities import ProvenIdentities, sign
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
    """Ann and mallory have keys; the file of allowed signers says whose count."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.allowed = folder, folder / "allowed_signers"
        self.ann, self.mallory = a_key_of("ann", folder), a_key_of("mallory", folder)

    def who(self, proof: Proof, **more: Any) -> Person:
        spec = ApproversSpec.model_validate({"allowed_signers": self.allowed.name} | more)
        return ProvenIdentities(spec, self.folder).verify(proof, AT)


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    return Signers(tmp_path)


def test_a_signature_says_who_it_was_by_the_key_under_the_first_of_its_names(signers: Signers) -> None:
    allow(signers.allowed, "ann@example.com,ann@corp", signers.ann, 'namespaces="tidegate",valid-before="20260602"')
    allow(signers.allowed, "bob@example.com", signers.ann)
    proof = sign(statement(), signers.ann)
    found = signers.who(proof, groups={"risk": ("ann@example.com",)})
    assert str(found) == f"ann@example.com (SSH key {fingerprint(signers.ann)})"
    assert (found.groups, found.listed) == (frozenset({"risk"}), True)
    assert signers.who(proof, aliases={"ann": ("ann@example.com",)}).identity == "ann"


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
    assert signers.who(sign(statement(), Path(f"{signers.ann}.pub"))).identity == "ann@example.com"
    subprocess.run(["ssh-add", "-q", "-D"], check=True)
    with pytest.raises(UsageError, match=r"ann\.pub: ssh-keygen did not sign: ") as refused:
        sign(statement(), Path(f"{signers.ann}.pub"))
    assert "the agent" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("principals", "options", "changed", "why"),
    [
        ("bob", "", {"key": "mallory"}, "no key of allowed_signers made the signature: No principal matched"),
        ("ann", "", {"statement": statement(reason="altered")}, "not that of ann on this statement"),
        ("ann", "", {"credential": "-----BEGIN SSH SIGNATURE-----\nno\n-----END SSH SIGNATURE-----\n"}, "no key of"),
        ("ann", "", {"namespace": "git"}, "namespace does not match"),
        ("ann", 'namespaces="git"', {}, "not that of ann on this statement"),
        ("ann", 'valid-before="20260601"', {}, "key has expired"),
        ("ann", 'valid-after="20260602"', {}, "key is not yet valid"),
        ("*@example.com", "", {}, r"has the pattern \*@example.com"),
    ],
)
def test_a_signature_that_is_not_for_this_proves_nothing(
    signers: Signers, principals: str, options: str, changed: dict[str, str], why: str
) -> None:
    allow(signers.allowed, principals, signers.ann, options)
    key = signers.folder / changed.pop("key", "ann")
    words = ["ssh-keygen", "-Y", "sign", "-n", changed.pop("namespace", "tidegate"), "-f", str(key)]
    signed = subprocess.run(words, input=statement(), capture_output=True, text=True, check=True).stdout
    with pytest.raises(Unproven, match=why):
        signers.who(Proof(kind="ssh", statement=statement(), credential=signed).model_copy(update=changed))


def test_files_that_are_not_there_are_told(signers: Signers, tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="the file of allowed signers cannot be read"):
        signers.who(sign(statement(), signers.ann))
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
    digest = digest_of(text)
    for bound in ({"nonce": digest}, {"aud": f"tidegate:{digest}"}, {"aud": ["x", f"tidegate:{digest}"]}):
        found = told(issuer, issuer.token(now(), **bound), text)
        assert (str(found), found.listed) == (f"ann@example.com (OIDC issuer {issuer.url})", False)
    # Groups are believed where the trust file says so.
    token = issuer.token(now(), nonce=digest, groups=["risk", "all"])
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
        ({"iss": "https://evil.example.com"}, r"names no OIDC issuer 'https://evil\.example\.com'"),
        ({"seconds": -1}, "the token ended at .* before it was given"),
        ({"iat": 1}, "the token is older than the statement"),
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
    with pytest.raises(Unproven, match="not signed by a key that"):
        told(issuer, jwt.encode(claims, issuer.key, algorithm=issuer.algorithm, headers={"kid": "two"}), text)
    with pytest.raises(Unproven, match="is no OIDC token"):
        told(issuer, "no.token", text)


def test_a_token_is_judged_by_when_it_was_given(issuer: OidcIssuer) -> None:
    text = statement(now() - timedelta(hours=1))
    token = issuer.token(now() - timedelta(minutes=50), nonce=digest_of(text))
    assert told(issuer, token, text, given=now() - timedelta(minutes=49)).identity == "ann@example.com"
    with pytest.raises(Unproven, match="before it was given"):
        told(issuer, token, text)


def test_keys_are_read_from_a_file_too_and_their_absence_refuses_nobody_for_good(tmp_path: Path) -> None:
    with oidc_issuer() as issuer:
        text, file = statement(now()), tmp_path / "jwks.json"
        token = issuer.token(now(), nonce=digest_of(text))
        file.write_text(issuer.jwks)
        assert told(issuer, token, text, jwks_url=None, jwks_file=str(file)).identity == "ann@example.com"
        issuer.key = a_key(issuer.algorithm)
        file.write_text(issuer.jwks)
        with pytest.raises(Unproven, match="signature verification failed"):
            told(issuer, token, text, jwks_url=None, jwks_file=str(file))
    for broken in ("no keys", '{"keys": []}', None):
        file.unlink() if broken is None else file.write_text(broken)
        with pytest.raises(OutsideError, match="cannot fetch the keys of the issuer"):
            told(issuer, token, text, jwks_url=None, jwks_file=str(file))
    with pytest.raises(OutsideError, match="cannot fetch the keys of the issuer"):
        told(issuer, token, text)
