"""OIDC tokens that say who made a statement, checked against an issuer's published keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt

from pipelines.identity.model import Person, Statement, Unproven, digest_of, utc
from pipelines.identity.spec import IssuerSpec
from tidegate.core.errors import OutsideError

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
            raise Unproven("what was given is no OIDC token") from None

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
            raise Unproven(f"the token has no claim {self._spec.identity_claim} that names somebody")
        if self._spec.identity_claim == "email" and claims.get("email_verified") is False:
            raise Unproven(f"the issuer has not verified that {identity} is theirs")
        once = None if bound else digest_of(token)
        return Person(identity=identity, how=f"OIDC issuer {self.name}", groups=self._groups(claims), once=once)

    def _key(self, token: str) -> jwt.PyJWK:
        try:
            if self._client is not None:
                return self._client.get_signing_key_from_jwt(token)
            assert self._file is not None, "an issuer has a file or an address of keys"
            named = jwt.get_unverified_header(token).get("kid")
            keys = jwt.PyJWKSet.from_dict(json.loads(self._file.read_text(encoding="utf-8"))).keys
        except jwt.PyJWKClientConnectionError as error:
            raise OutsideError(f"{self.name}: its keys cannot be had", detail=str(error)) from None
        except (OSError, ValueError, jwt.PyJWKSetError) as error:
            raise OutsideError(f"{self._file}: not a file of keys (JWKS)", detail=str(error)) from None
        except jwt.PyJWTError:
            raise Unproven(f"the token is not signed by a key that {self.name} has now") from None
        found = next((key for key in keys if key.key_id == named), keys[0] if len(keys) == 1 and not named else None)
        if found is None:
            raise Unproven(f"the token is not signed by a key that {self.name} has now")
        return found

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        # Times are judged below: not by this moment, but by the one at which it was handed in.
        options: Any = {"require": NEEDED, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        options |= {"verify_aud": False}
        try:
            return jwt.decode(token, key, algorithms=ALGORITHMS, issuer=self.name, options=options)
        except jwt.InvalidTokenError as error:
            raise Unproven(f"the token proves nothing: {str(error).lower()}") from None

    def _is_bound(self, claims: Mapping[str, Any], digest: str) -> bool:
        """Whether it was issued for this very statement."""
        named = claims["aud"]
        audiences = [str(each) for each in named] if isinstance(named, list) else [str(named)]
        if f"{self._spec.audience}:{digest}" in audiences:
            return True
        if self._spec.audience not in audiences:
            raise Unproven(f"the token is for {', '.join(audiences)}; expected {self._spec.audience}")
        if claims.get("nonce") == digest:
            return True
        if self._spec.binding == "statement":
            raise Unproven("the token was not issued for this statement: neither `nonce` nor `aud` has its digest")
        return False

    def _in_date(self, claims: Mapping[str, Any], statement: Statement, given: datetime, *, bound: bool) -> None:
        issued, ends = _moment(claims, "iat"), _moment(claims, "exp")
        begins = max(issued, _moment(claims, "nbf")) if "nbf" in claims else issued
        if given >= ends:
            raise Unproven(f"the token ended at {utc(ends)}, before it was given")
        if given < begins - SKEW:
            raise Unproven(f"the token begins at {utc(begins)}, after it was given")
        if bound:
            if issued < statement.at - SKEW:
                raise Unproven("the token is older than the statement that it is for")
            return
        last = min(ends, issued + self._spec.max_age)
        if not begins - SKEW <= statement.at < last or given >= last + SKEW:
            raise Unproven(f"the token counts from {utc(begins)} to {utc(last)}, and what it is for was said outside")

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        found = claims.get(self._spec.groups_claim, ()) if self._spec.groups_claim else ()
        return frozenset(map(str, found) if isinstance(found, list) else [found] if isinstance(found, str) else ())


def _moment(claims: Mapping[str, Any], name: str) -> datetime:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unproven(f"the token's {name} is no time")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise Unproven(f"the token's {name} is no time") from None
