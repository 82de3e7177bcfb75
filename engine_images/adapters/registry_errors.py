"""What went wrong between us and a registry, in one line.

Two kinds: the registry is away or overloaded (`RegistryUnavailable`: the same request may well succeed later),
or it answered and meant it (`RegistryRefused`). The libraries' own messages are not repeated: they may quote
headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFUnauthorizedError
from requests import ConnectionError as NoConnection
from requests import HTTPError, RequestException, Response
from requests.exceptions import ConnectTimeout, ReadTimeout, SSLError

from engine_images.errors import BrokenImage, NotThere, RegistryRefused, RegistryUnavailable
from engine_images.oci.reference import Reference

AWAY = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same request may well succeed."""

REASONS = (
    (SSLError, "its certificate is not trusted, or it speaks no TLS"),
    (ConnectTimeout, "no connection"),
    (ReadTimeout, "silence"),
    (NoConnection, "no connection, or it broke off"),
)


@contextmanager
def in_our_words(reference: Reference, user: str | None, what: str) -> Iterator[None]:
    """Turn errors of python-dxf and requests into ours.

    Args:
        reference: the repository that was asked.
        user: whose credentials were at hand.
        what: was asked for, such as `blob sha256:...`.

    Raises:
        BrokenImage: content is not what its digest says.
        RegistryRefused: it answered and meant it.
        RegistryUnavailable: it did not answer, or was not able to.
    """
    where = f"{reference.registry}/{reference.repository}"
    login = f"docker login {reference.registry}, or give --username and --password-stdin"
    try:
        yield
    except DXFAuthInsecureError:
        raise RegistryRefused(f"{reference.registry} wants credentials, which are not sent over plain http") from None
    except DXFUnauthorizedError:
        said = f"user `{user}` or the password is not accepted" if user else "credentials are wanted"
        raise RegistryRefused(f"{where}: {said}", hint=login) from None
    except DXFDigestMismatchError:
        raise BrokenImage(f"{where} gives something else for {what}: it was changed") from None
    except HTTPError as error:
        raise _answered(error, where, what, login) from None
    except RequestException as error:
        reason = next((words for kind, words in REASONS if isinstance(error, kind)), type(error).__name__)
        raise RegistryUnavailable(f"{reference.registry} does not answer: {reason}") from None


def status_of(error: HTTPError) -> int:
    """The HTTP status that the registry answered with."""
    return error.response.status_code if error.response is not None else 0


def _answered(error: HTTPError, where: str, what: str, login: str) -> RegistryRefused | RegistryUnavailable:
    status = status_of(error)
    if status in AWAY:
        return RegistryUnavailable(f"{where} answers {status} for {what}{_reason(error.response)}")
    if status == 403:
        return RegistryRefused(f"{where}: not allowed", hint=login)
    if status == 404:
        return NotThere(f"{where} has no {what}")
    return RegistryRefused(f"{where} answers {status} for {what}{_reason(error.response)}")


def _reason(response: Response | None) -> str:
    """What the registry says in its own format; nothing of pages that others put in front of it."""
    try:
        first = json.loads(response.content)["errors"][0] if response is not None else {}
        said = f"{first['code']}: {first.get('message', '')}".strip(": ")
        detail = first.get("detail")
        return f" ({said}{f', {detail}' if isinstance(detail, str) else ''})"
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
