"""Tells an engine that fails from an engine that was not reached, of what OpenAI's client raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gates.errors import BadAnswer
from tidegate.core.errors import OutsideError

if TYPE_CHECKING:
    from openai import APIConnectionError, APIError, APIStatusError

NO_CONNECTION = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"})
"""The HTTP library's errors that leave the engine out of it: nothing was sent."""
ACCESS = frozenset({401, 403, 407, 429})
"""Anyone who says these lets nobody through to the engine, or not now."""
ROUTE = frozenset({404, 502, 503, 504})
"""A proxy says these when it finds no engine; an engine that says them does so in JSON."""
WORDS = 200
"""Of an engine's own words, as many characters."""


@contextmanager
def engine_errors(url: str) -> Iterator[None]:
    """Name what went wrong with the engine at `url`.

    Raises:
        BadAnswer: it was reached and did not answer as an engine does.
        OutsideError: it was not reached, or whatever stands before it let nobody through.
    """
    from openai import APIError

    try:
        yield
    except APIError as error:
        raise _explained(error, url) from error
    # Of what is no JSON, or not of the form that was asked for: pydantic's ValidationError is one too.
    except ValueError as error:
        raise BadAnswer(
            f"the engine at {url} answers what is no OpenAI response: {in_short(str(error))}", hint="its log says more"
        ) from error


def broke_off(url: str, tokens: int) -> BadAnswer:
    """An answer without an end."""
    return BadAnswer(f"the engine at {url} broke off its answer after {tokens} tokens", hint="its log says more")


def _explained(error: APIError, url: str) -> OutsideError:
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    match error:
        case APIStatusError():
            return _status(error, url)
        case APIConnectionError() if type(error.__cause__).__name__ in NO_CONNECTION:
            return _not_reached(error, url)
        case APITimeoutError():
            what = "took too long to answer"
        case APIConnectionError():
            what = "broke off its answer"
        case _:
            what = f"broke off its answer with: {in_short(error.message)}"
    return BadAnswer(f"the engine at {url} {what}", hint="its log says more", detail=str(error))


def _status(error: APIStatusError, url: str) -> OutsideError:
    return told_by_status(url, error.status_code, error.response.text, error.body)


def told_by_status(url: str, status: int, text: str, body: object) -> OutsideError:
    """The error for an answer that is no 200; `body` is the JSON of `text`, or of what stands in it at `error`."""
    own = _own_words(body)
    words = in_short(own or text) or "no words"
    if status in ACCESS or (status in ROUTE and own is None):
        hint = "no engine says this; look at what stands before it, and at the address"
        return OutsideError(f"{url} answers {status}: {words}", hint=hint, detail=text)
    return BadAnswer(f"the engine at {url} answers {status}: {words}", hint="its log says more", detail=text)


def _own_words(body: Any) -> str | None:
    """What an OpenAI-compatible engine writes in `error`, or its web framework in `detail`; None of other answers."""
    if not isinstance(body, dict):
        return None
    # The client hands on what stands below `error`, when there is something.
    said = body.get("message") or body.get("detail") or body.get("error")
    return None if said is None else str(said)


def _not_reached(error: APIConnectionError, url: str) -> OutsideError:
    reason = in_short(str(error.__cause__)) or type(error.__cause__).__name__
    return OutsideError(f"the engine at {url} does not answer: {reason}", hint="check that the address leads to it")


def in_short(text: str) -> str:
    """Others' words, on one line and not too many of them."""
    return " ".join(text.split())[:WORDS]
