"""Requests, errors and refusals from what a proxy counted between two scrapes."""

from __future__ import annotations

from collections.abc import Mapping

from gates.model import Counts

BROKEN_BEFORE_HEADERS = 503
LATE_BEFORE_HEADERS = 504


def outcome(by_code: Mapping[int, int], *, torn: int, timeouts: int) -> Counts:
    """What became of the requests of one scrape interval.

    The proxy counts each request once, under the status of its headers; what broke later is in `torn`
    and `timeouts`, together with what broke before its headers and is a 503 or 504 already. Asked for
    each interval alone, so that a 503 hides no stream that was cut at another time.
    A stream that was cut in a later interval than its headers is one more request here: no error is
    lost, and sums over intervals stay sums.
    """
    total = sum(by_code.values())
    refused = sum(count for code, count in by_code.items() if 400 <= code < 500)
    failed = sum(count for code, count in by_code.items() if code >= 500)
    failed += max(0, torn - by_code.get(BROKEN_BEFORE_HEADERS, 0))
    failed += max(0, timeouts - by_code.get(LATE_BEFORE_HEADERS, 0))
    return Counts(total=max(total, failed + refused), failed=failed, refused=refused)
