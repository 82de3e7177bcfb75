"""Proofs of who somebody is, checked by `trust.yaml`: OIDC tokens, and SSH signatures by `ssh-keygen -Y`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt

from pipelines.spec.trust import ApproversSpec, IssuerSpec
from pipelines.statements import Person, Proof, Statement, Unproven, digest_of, read_statement, utc
from tidegate.core.errors import OutsideError, UsageError

ALGORITHMS = ("RS256", "ES256")
"""Signatures by public keys; a token that says otherwise, such as none or HS256, is refused."""
SKEW = timedelta(minutes=1)
"""By how much clocks of people, issuers and deliveries may differ."""
TIMEOUT_SECONDS = 10.0
NEEDED = ("iss", "aud", "exp", "iat")


class Issuer:
    """One issuer that is believed, and its keys."""

    def __init__(self, spec: IssuerSpec, folder: Path) -> None:
        """Asks nobody yet; a file of keys is found from `folder`."""
        self._spec = spec
        self._file = folder / spec.jwks_file if spec.jwks_file else None
        self._client = jwt.PyJWKClient(spec.jwks_url, timeout=TIMEOUT_SECONDS) if spec.jwks_url else None

    @property
    def name(self) -> str:
        """As `iss` has it."""
        return self._spec.issuer

    @staticmethod
    def claimed(token: str) -> str:
        """Whom a token says it is from; nothing of it is believed yet.

        Raises:
            Unproven: that is no token.
        """
        try:
            return str(jwt.decode(token, options={"verify_signature": False}).get("iss", ""))
        except jwt.InvalidTokenError:
            raise Unproven("this is no OIDC token", hint="give the whole ID token") from None

    def person(self, token: str, statement: Statement, text: str, given: datetime) -> Person:
        """Who the token says made the statement.

        Raises:
            Unproven: the token is not the issuer's, not for us, not in date, or not for this statement.
            OutsideError: the issuer's keys cannot be had.
        """
        claims = self._claims(token, self._key(token))
        bound = self._is_bound(claims, digest_of(text))
        self._in_date(claims, statement, given, bound=bound)
        identity = claims.get(self._spec.identity_claim)
        if not isinstance(identity, str) or not identity:
            raise Unproven(
                f"the token has no claim {self._spec.identity_claim} that names somebody",
                hint="name another `identity_claim` in the trust file",
            )
        # A claim that is left out, 0, and "false" or "true" as text say nothing that OIDC knows.
        if self._spec.identity_claim == "email" and claims.get("email_verified") is not True:
            raise Unproven(
                f"the issuer has not verified {identity}",
                hint="have the issuer verify it, or name another `identity_claim`",
            )
        return Person(identity=identity, how=f"OIDC issuer {self.name}", groups=self._groups(claims), once=not bound)

    def _key(self, token: str) -> jwt.PyJWK:
        try:
            if self._client is not None:
                return self._client.get_signing_key_from_jwt(token)
            assert self._file is not None, "an issuer has a file or an address of keys"
            named = jwt.get_unverified_header(token).get("kid")
            keys = jwt.PyJWKSet.from_dict(json.loads(self._file.read_text(encoding="utf-8"))).keys
        except jwt.PyJWKClientConnectionError as error:
            raise OutsideError(
                f"cannot fetch the keys of the issuer {self.name}",
                hint="check the issuer's address, and that it can be reached",
                detail=str(error),
            ) from None
        except (OSError, ValueError, jwt.PyJWKSetError) as error:
            raise OutsideError(
                f"{self._file}: not a file of keys (JWKS)",
                hint="write what the issuer's `jwks_uri` gives",
                detail=str(error),
            ) from None
        except jwt.PyJWTError:
            raise Unproven(
                f"the token is not signed by a key that {self.name} has now",
                hint="get a new token, or check the issuer in the trust file",
            ) from None
        found = next((key for key in keys if key.key_id == named), keys[0] if len(keys) == 1 and not named else None)
        if found is None:
            raise Unproven(
                f"the token is not signed by a key that {self.name} has now",
                hint="get a new token, or check the issuer in the trust file",
            )
        return found

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        # Times are judged below: not by this moment, but by the one at which it was handed in.
        options: Any = {"require": NEEDED, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        options |= {"verify_aud": False}
        try:
            return jwt.decode(token, key, algorithms=ALGORITHMS, issuer=self.name, options=options)
        except jwt.InvalidTokenError as error:
            raise Unproven(f"the token proves nothing: {str(error).lower()}", hint="get a new token") from None

    def _is_bound(self, claims: Mapping[str, Any], digest: str) -> bool:
        """Whether it was issued for this very statement."""
        named = claims["aud"]
        audiences = [str(each) for each in named] if isinstance(named, list) else [str(named)]
        if f"{self._spec.audience}:{digest}" in audiences:
            return True
        if self._spec.audience not in audiences:
            raise Unproven(
                f"the token is for {', '.join(audiences)}; expected {self._spec.audience}",
                hint="ask for a token with this audience",
            )
        if claims.get("nonce") == digest:
            return True
        if self._spec.binding == "statement":
            raise Unproven(
                "the token was not issued for this statement: neither `nonce` nor `aud` has its digest",
                hint="ask for a token with the digest as nonce or audience",
            )
        return False

    def _in_date(self, claims: Mapping[str, Any], statement: Statement, given: datetime, *, bound: bool) -> None:
        issued, ends = _moment(claims, "iat"), _moment(claims, "exp")
        begins = max(issued, _moment(claims, "nbf")) if "nbf" in claims else issued
        if given >= ends:
            raise Unproven(f"the token ended at {utc(ends)}, before it was given", hint="get a new token")
        if given < begins - SKEW:
            raise Unproven(f"the token begins at {utc(begins)}, after it was given", hint="set the clocks")
        if bound:
            if issued < statement.at - SKEW:
                raise Unproven("the token is older than the statement that it is for", hint="get a new token")
            return
        last = min(ends, issued + self._spec.max_age)
        if not begins - SKEW <= statement.at < last or given >= last + SKEW:
            raise Unproven(
                f"the token counts from {utc(begins)} to {utc(last)}, and what it is for was said outside",
                hint="get a new token, and answer again",
            )

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        found = claims.get(self._spec.groups_claim, ()) if self._spec.groups_claim else ()
        return frozenset(map(str, found) if isinstance(found, list) else [found] if isinstance(found, str) else ())


def _moment(claims: Mapping[str, Any], name: str) -> datetime:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unproven(f"the token's {name} is no time", hint="its issuer must give `iat` and `exp` as numbers")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise Unproven(
            f"the token's {name} is no time", hint="its issuer must give `iat` and `exp` as numbers"
        ) from None


NAMESPACE = "tidegate"
"""A signature for anything else, such as a Git commit, counts for nothing here, and ours for nothing there."""
ENOUGH_SECONDS = 10
"""A key in a token that must be touched takes a person; checking takes milliseconds."""
TOUCH_SECONDS = 120
_GOOD = re.compile(r"key (SHA256:\S+)")
_PATTERN = frozenset("*?!")


@dataclass(frozen=True)
class Signer:
    """Whose key it was."""

    principal: str
    fingerprint: str


def sign(statement: str, key: Path) -> str:
    """The armored signature over the statement, by a private key, or by an agent that has it when `key` is public.

    Raises:
        UsageError: there is no such key, or it could not be used.
    """
    if not key.exists():
        raise UsageError(f"{key}: there is no such key", hint="name a private key, or the public one of an agent's")
    # Its standard streams stay a person's: it may ask for a passphrase, which goes over the terminal.
    ended = _ssh_keygen(["sign", "-n", NAMESPACE, "-f", str(key)], statement, TOUCH_SECONDS)
    if ended.returncode != 0:
        raise UsageError(
            f"{key}: ssh-keygen did not sign: {_last_line(ended.stderr)}",
            hint="check the key, its passphrase and the agent",
        )
    return ended.stdout


@dataclass(frozen=True)
class KeyProver:
    """A `Prover`: an SSH key, here or in an agent."""

    key: Path

    def prove(self, statement: str) -> Proof:
        """Sign it."""
        return Proof(kind="ssh", statement=statement, credential=sign(statement, self.key))


def signer_of(statement: str, signature: str, allowed: Path, at: datetime) -> Signer:
    """Whose signature it is, by the file of allowed signers as it was valid at that time.

    A key that stands under several names is one person, the first of them.

    Raises:
        Unproven: nobody's whom the file allows then, or of another text, or for something else than tidegate.
        OutsideError: the file or ssh-keygen is not there.
    """
    if not os.access(allowed, os.R_OK):
        raise OutsideError(
            f"{allowed}: the file of allowed signers cannot be read",
            hint="see `approvers.allowed_signers` in trust.yaml",
        )
    time = f"-Overify-time={at.astimezone(UTC):%Y%m%d%H%M%S}"
    with TemporaryDirectory(prefix="tidegate-") as folder:
        file = Path(folder) / "statement.sig"
        file.write_text(signature, encoding="utf-8")
        named = _ssh_keygen(["find-principals", "-s", str(file), "-f", str(allowed), time])
        principal = next(iter(named.stdout.split()), "")
        if named.returncode != 0 or not principal:
            raise Unproven(
                f"no key of {allowed.name} made the signature: {_why(named)}",
                hint="an administrator adds the key to that file",
            )
        if _PATTERN & set(principal):
            raise Unproven(
                f"{allowed.name} has the pattern {principal} for that key, which names nobody",
                hint="write a name in its place",
            )
        words = ["verify", "-f", str(allowed), "-I", principal, "-n", NAMESPACE, "-s", str(file), time]
        checked = _ssh_keygen(words, statement)
    good = _GOOD.search(checked.stdout)
    if checked.returncode != 0 or good is None:
        raise Unproven(
            f"the signature is not that of {principal} on this statement: {_why(checked)}",
            hint="sign this very statement: `ssh-keygen -Y sign -n tidegate`",
        )
    return Signer(principal, good[1])


def _ssh_keygen(
    words: Sequence[str], text: str = "", seconds: float = ENOUGH_SECONDS
) -> subprocess.CompletedProcess[str]:
    # Times in the file of signers are those of the machine's zone unless they say Z; UTC is the same on every one.
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words],
            input=text,
            text=True,
            capture_output=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise OutsideError("ssh-keygen is not installed here", hint="install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise OutsideError(
            f"ssh-keygen said nothing for {seconds:g} s", hint="does an agent wait for a touch or a passphrase?"
        ) from None


def _why(ended: subprocess.CompletedProcess[str]) -> str:
    """Its own reason, without the place of the file: the first line says it, the others that it failed."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return re.sub(r"^.*?:\d+: ", "", lines[0]) if lines else "no principal matched"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


class ProvenIdentities:
    """`Identities` by SSH keys and OIDC issuers."""

    def __init__(self, approvers: ApproversSpec, folder: Path) -> None:
        """`folder` is where the trust file lies; paths in it start there."""
        self._approvers = approvers
        self._signers = folder / approvers.allowed_signers if approvers.allowed_signers else None
        self._issuers: Sequence[Issuer] = [Issuer(each, folder) for each in approvers.oidc]

    def verify(self, proof: Proof, given: datetime) -> Person:
        """As `Identities.verify`: the person under the one name that counts, with groups of the file and the token."""
        found = self._signed(proof) if proof.kind == "ssh" else self._told(proof, given)
        person = self._approvers.person(found.identity)
        groups = found.groups | self._approvers.groups_of(person)
        listed = proof.kind == "ssh" or bool(groups)
        return found.model_copy(update={"identity": person, "groups": groups, "listed": listed})

    def _signed(self, proof: Proof) -> Person:
        if self._signers is None:
            raise Unproven(
                "trust.yaml names no `approvers.allowed_signers`, so that no SSH signature proves anything",
                hint="name the file of allowed signers there",
            )
        at = read_statement(proof).at
        signer = signer_of(proof.statement, proof.credential, self._signers, at)
        return Person(identity=signer.principal, how=f"SSH key {signer.fingerprint}")

    def _told(self, proof: Proof, given: datetime) -> Person:
        name = Issuer.claimed(proof.credential)
        issuer = next((each for each in self._issuers if each.name == name), None)
        if issuer is None:
            raise Unproven(f"trust.yaml names no OIDC issuer {name!r}", hint="add it under `approvers.oidc`")
        return issuer.person(proof.credential, read_statement(proof), proof.statement, given)
