"""Calls to an MLflow store as a whole: each ends in time, and whatever is wrong in an answer is the store's error."""

from __future__ import annotations

import configparser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from registry.adapters.mlflow_address import RETRIES, TIMEOUT, TIMEOUT_SECONDS, default, unreadable_credentials
from registry.errors import StoreUnreachable
from tidegate.core.errors import TidegateError
from tidegate.core.text import failure_line, redacted
from tidegate.core.threads import call_within

MOST_PAGES = 1000
"""Of one list. MLflow gives up to 1000 runs or versions on each."""

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow's own 7 retries take four minutes to say that nobody is there; 3 wait about 15 seconds.
    RETRIES: "3",
    TIMEOUT: str(TIMEOUT_SECONDS),
}
MOVE_FILES = frozenset({"upload", "download", "put", "parts"})
"""Calls whose time depends on what they move; a request of theirs must not stand still."""

Part = TypeVar("Part")
Item = TypeVar("Item")


def bounded(part: Part, uri: str, *, seconds: float | None = None) -> Part:
    """The runs, models or files of a store, with calls that raise nothing but `TidegateError` and `OSError`.

    Args:
        part: implements a Protocol of `registry.ports`.
        uri: of the store.
        seconds: of one call with all that it asks, if it does not move files; None for no limit.
    """
    return cast("Part", _Bounded(part, f"MLflow store {redacted(uri)}", seconds))


def load_mlflow() -> None:
    """Import MLflow's client: a second of a processor.

    It reads its settings from the environment then, so this sets them first; those that a user has set stay.
    """
    for name, value in _SETTINGS.items():
        default(name, value)
    import mlflow  # noqa: F401


class _Bounded:
    def __init__(self, part: object, place: str, seconds: float | None) -> None:
        self._part, self._place, self._seconds = part, place, seconds

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._part, name)

        def whole(*args: object, **named: object) -> object:
            with _odd_answers(self._place):
                answer = self._in_time(lambda: call(*args, **named), None if name in MOVE_FILES else self._seconds)
            return self._each(answer) if isinstance(answer, Iterator) else answer

        return whole

    def _in_time(self, call: Callable[[], object], seconds: float | None) -> object:
        if seconds is None:
            return call()
        # The time that a busy machine needs for it is not the store's.
        load_mlflow()
        try:
            # The time limits of HTTP libraries are of one read: a byte a second never ends.
            return call_within(seconds, call)
        except TimeoutError:
            raise StoreUnreachable(
                f"{self._place}: no whole answer in {seconds:g} s",
                hint="check the tracking URI and what answers there",
            ) from None

    def _each(self, parts: Iterator[object]) -> Iterator[object]:
        with _odd_answers(self._place):
            yield from parts


@contextmanager
def _odd_answers(place: str) -> Iterator[None]:
    try:
        yield
    # A disk of this machine is no fault of the store.
    except (TidegateError, OSError, ImportError):
        raise
    # By MLflow's own library, which reads the same file.
    except configparser.Error:
        raise unreadable_credentials() from None
    except Exception as error:
        raise StoreUnreachable(
            f"{place}: its answer cannot be read: {failure_line(error)}",
            hint="check the tracking URI, and that MLflow answers there and no proxy",
        ) from error


def all_pages(page: Callable[[str | None], tuple[Sequence[Item], str]]) -> Iterator[Item]:
    """The items of all pages of a list.

    Args:
        page: gives the items behind a token, which is None for the first page, and the next token, "" at the end.

    Raises:
        StoreUnreachable: the pages do not end.
    """
    token: str | None = None
    seen: set[str] = set()
    while token != "":
        items, token = page(token)
        yield from items
        if token in seen or len(seen) >= MOST_PAGES:
            raise StoreUnreachable(
                f"MLflow lists the same page again, or more than {MOST_PAGES} pages",
                hint="check the tracking URI, and that MLflow answers there and no proxy",
            )
        seen.add(token)
