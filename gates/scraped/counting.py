"""Who counts an arm's requests, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gates.scraped.conventions import RESPONSE_CODE, RESPONSES, TIMEOUTS, TORN


@dataclass(frozen=True)
class Counting:
    """Names of counters, and which of their series are requests of users."""

    whose: str
    """For people: `the proxy's`."""
    responses: str
    """Requests by the status of their answers."""
    status: str
    """The label that says it: `200`, or a class such as `2xx`."""
    torn: str = ""
    """Streams that were cut; empty where nobody counts them."""
    timeouts: str = ""
    own: tuple[str, ...] = ()
    """More labels that tell the series of one target apart."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of labels: whatever has others is nobody's request."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Roles that it knows under another name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its counters."""
        return tuple(name for name in (self.responses, self.torn, self.timeouts) if name)

    def is_of_users(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels counts what users asked."""
        return all(labels.get(name, "").startswith(begin) for name, begin in self.only.items())


BY_PROXY = Counting(whose="the proxy's", responses=RESPONSES, status=RESPONSE_CODE, torn=TORN, timeouts=TIMEOUTS)
"""Envoy in front of the engines: sees cut streams, timeouts and engines that are gone."""

BY_ENGINE = Counting(
    whose="the engines'",
    responses="http_requests_total",
    status="status",
    own=("handler", "method"),
    only={"method": "POST", "handler": "/v1/"},
    # An engine does not know that what it answers are copies.
    roles={"shadow": "canary"},
)
"""vLLM's own API server, where no proxy of ours is: sees what it answered, not that it died."""
