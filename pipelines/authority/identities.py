"""Who somebody is: by SSH keys, of which `ssh-keygen` signs and checks, or OIDC issuers, whose tokens PyJWT checks."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt

from pipelines.spec.trust import ApproversSpec, IssuerSpec
from pipelines.statements import Person, Proof, Unproven, digest_of, utc
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.text import json_of


class ProvenIdentities:
    """Checks proofs, by the trust file of this machine."""

    def __init__(self, approvers: ApproversSpec, folder: Path) -> None:
        """`folder` is where the trust file lies; paths in it start there. Asks nobody yet."""
        self.approvers = approvers
        self._signers = folder / approvers.allowed_signers if approvers.allowed_signers else None
        self._issuers = {each.issuer: Issuer(each, folder) for each in approvers.oidc}

    def verify(self, proof: Proof, given: datetime) -> Person:
        """Who made the statement, which is not judged here: the person under the one name that counts, with groups of
        the file and the token.

        Args:
            proof: the statement, and what proves it.
            given: when it was handed in; a proof that was out of date by then proves nothing.

        Raises:
            Unproven: it does not prove it; says why.
            OutsideError: it cannot be checked now, such as when an issuer's keys cannot be had.
        """
        if proof.kind == "oidc":
            found = self._issuer_of(proof.credential).person(proof, given)
        elif self._signers is not None:
            found = signer_of(proof, self._signers)
        else:
            raise Unproven(
                "trust.yaml names no `approvers.allowed_signers`, so that no SSH signature proves anything",
                hint="name the file of allowed signers there",
            )
        person = self.approvers.person(found.identity)
        groups = found.groups | self.approvers.groups_of(person)
        listed = proof.kind == "ssh" or bool(groups)
        return found.model_copy(update={"identity": person, "groups": groups, "listed": listed})

    def _issuer_of(self, token: str) -> Issuer:
        """Whom a token says it is from; nothing of it is believed yet."""
        try:
            name = str(jwt.decode(token, options={"verify_signature": False}).get("iss", ""))
        except jwt.InvalidTokenError:
            raise Unproven("this is no OIDC token", hint="give the whole ID token") from None
        if name not in self._issuers:
            raise Unproven(f"trust.yaml names no OIDC issuer {name!r}", hint="add it under `approvers.oidc`")
        return self._issuers[name]


ALGORITHMS = ("RS256", "ES256")
"""Signatures by public keys; a token that says otherwise, such as none or HS256, is refused."""
SKEW = timedelta(minutes=1)
"""By how much clocks of people, issuers and deliveries may differ."""
TIMEOUT_SECONDS = 10.0


class Issuer:
    """One issuer that is believed, and its keys."""

    def __init__(self, spec: IssuerSpec, folder: Path) -> None:
        """Asks nobody yet; a file of keys is found from `folder`."""
        self._spec = spec
        self._file = folder / spec.jwks_file if spec.jwks_file else None
        self._client = jwt.PyJWKClient(spec.jwks_url, timeout=TIMEOUT_SECONDS) if spec.jwks_url else None

    def person(self, proof: Proof, given: datetime) -> Person:
        """Who the token says made the statement.

        Raises:
            Unproven: the token is not the issuer's, not for us, not in date, or not for this statement.
            OutsideError: the issuer's keys cannot be had.
        """
        spec, claims = self._spec, self._claims(proof.credential)
        self._refuse_unbound(claims, digest_of(proof.statement))
        _refuse_out_of_date(claims, proof.read().at, given)
        identity = claims.get(spec.identity_claim)
        if not isinstance(identity, str) or not identity:
            raise Unproven(
                f"the token has no claim {spec.identity_claim} that names somebody",
                hint="name another `identity_claim` in the trust file",
            )
        # A claim that is left out, 0, and "false" or "true" as text say nothing that OIDC knows.
        if spec.identity_claim == "email" and claims.get("email_verified") is not True:
            raise Unproven(
                f"the issuer has not verified {identity}",
                hint="have the issuer verify it, or name another `identity_claim`",
            )
        told = claims.get(spec.groups_claim, ()) if spec.groups_claim else ()
        groups = map(str, told) if isinstance(told, list) else [told] if isinstance(told, str) else ()
        how = f"OIDC issuer {spec.issuer}"
        return Person(identity=identity, how=how, groups=frozenset(groups))

    def _claims(self, token: str) -> Mapping[str, Any]:
        # Times are judged below: not by this moment, but by the one at which it was handed in.
        options: Any = dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud"), False)
        options["require"] = ("iss", "aud", "exp", "iat")
        try:
            return jwt.decode(token, self._key(token), algorithms=ALGORITHMS, issuer=self._spec.issuer, options=options)
        except jwt.InvalidTokenError as error:
            raise Unproven(f"the token proves nothing: {str(error).lower()}", hint="get a new token") from None
        except (jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, OSError, ValueError) as error:
            raise OutsideError(
                f"cannot fetch the keys of the issuer {self._spec.issuer}",
                hint="check `jwks_url`, or that `jwks_file` holds what the issuer's `jwks_uri` gives",
                detail=str(error),
            ) from None
        except (jwt.PyJWTError, KeyError):
            raise Unproven(
                f"the token is not signed by a key that {self._spec.issuer} has now",
                hint="get a new token, or check the issuer in the trust file",
            ) from None

    def _key(self, token: str) -> jwt.PyJWK:
        if self._client is not None:
            return self._client.get_signing_key_from_jwt(token)
        assert self._file is not None, "an issuer has a file or an address of keys"
        keys = jwt.PyJWKSet.from_dict(json_of(self._file.read_text(encoding="utf-8")))
        return keys[jwt.get_unverified_header(token).get("kid", "")]

    def _refuse_unbound(self, claims: Mapping[str, Any], digest: str) -> None:
        """A token counts for the very statement that it was issued for: else it could stand next to any other."""
        named = claims["aud"]
        audiences = [str(each) for each in named] if isinstance(named, list) else [str(named)]
        if f"{self._spec.audience}:{digest}" in audiences:
            return
        if self._spec.audience not in audiences:
            raise Unproven(
                f"the token is for {', '.join(audiences)}; expected {self._spec.audience}",
                hint="ask for a token with this audience",
            )
        if claims.get("nonce") != digest:
            raise Unproven(
                "the token was not issued for this statement: neither `nonce` nor `aud` has its digest",
                hint="ask for a token with the digest as nonce or audience",
            )


def _refuse_out_of_date(claims: Mapping[str, Any], said: datetime, given: datetime) -> None:
    issued, ends = _moment(claims, "iat"), _moment(claims, "exp")
    begins = max(issued, _moment(claims, "nbf")) if "nbf" in claims else issued
    if given >= ends:
        raise Unproven(f"the token ended at {utc(ends)}, before it was given", hint="get a new token")
    if given < begins - SKEW:
        raise Unproven(f"the token begins at {utc(begins)}, after it was given", hint="set the clocks")
    if issued < said - SKEW:
        raise Unproven("the token is older than the statement that it is for", hint="get a new token")


def _moment(claims: Mapping[str, Any], name: str) -> datetime:
    try:
        if isinstance(claims[name], int | float) and not isinstance(claims[name], bool):
            return datetime.fromtimestamp(claims[name], UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise Unproven(f"the token's {name} is no time", hint="its issuer must give `iat` and `exp` as numbers")


NAMESPACE = "tidegate"
"""A signature for anything else, such as a Git commit, counts for nothing here, and ours for nothing there."""
CHECK_SECONDS = 10
TOUCH_SECONDS = 120
"""A key in a token that must be touched takes a person; checking takes milliseconds."""
_GOOD = re.compile(r"key (SHA256:\S+)")
_PATTERN = frozenset("*?!")


def sign(statement: str, key: Path) -> Proof:
    """The statement, signed by a private key, or by an agent that has it when `key` is public.

    Raises:
        UsageError: there is no such key, or it could not be used.
    """
    if not key.exists():
        raise UsageError(f"{key}: there is no such key", hint="name a private key, or the public one of an agent's")
    # Its standard streams stay a person's: it may ask for a passphrase, which goes over the terminal.
    ended = _ssh_keygen(["sign", "-n", NAMESPACE, "-f", str(key)], statement, TOUCH_SECONDS)
    if ended.returncode != 0:
        lines = ended.stderr.split("\n")
        why = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        raise UsageError(f"{key}: ssh-keygen did not sign: {why}", hint="check the key, its passphrase and the agent")
    return Proof(kind="ssh", statement=statement, credential=ended.stdout)


def signer_of(proof: Proof, allowed: Path) -> Person:
    """Whose signature it is, by the file of allowed signers as it was valid at the time of the statement.

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
    time = f"-Overify-time={proof.read().at.astimezone(UTC):%Y%m%d%H%M%S}"
    with TemporaryDirectory(prefix="tidegate-") as folder:
        file = Path(folder) / "statement.sig"
        file.write_text(proof.credential, encoding="utf-8")
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
        checked = _ssh_keygen(words, proof.statement)
    good = _GOOD.search(checked.stdout)
    if checked.returncode != 0 or good is None:
        raise Unproven(
            f"the signature is not that of {principal} on this statement: {_why(checked)}",
            hint="sign this very statement, for nothing but tidegate",
        )
    return Person(identity=principal, how=f"SSH key {good[1]}")


def _ssh_keygen(
    words: Sequence[str], text: str = "", seconds: float = CHECK_SECONDS
) -> subprocess.CompletedProcess[str]:
    # Times in the file of signers are those of the machine's zone unless they say Z; UTC is the same on every one.
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C"}
    command = ["ssh-keygen", "-Y", *words]
    try:
        return subprocess.run(
            command, input=text, text=True, capture_output=True, env=environment, timeout=seconds, check=False
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
