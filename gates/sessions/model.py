"""What a session is known by, what it answers, and what bounds all of them together."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Annotated

from pydantic import ConfigDict, Field

from gates.model import ArmKey, GateVerdict, OutcomeName
from tidegate.core.errors import Refused, UsageError
from tidegate.core.model import Value

Name = Annotated[str, Field(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""As Kubernetes bounds names; without characters that would break a line of a log."""
GivenName = Annotated[Name, Field(min_length=1)]


class SessionKey(Value):
    """Which canary is judged: anyone who gives the same key asks about the same test."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: GivenName
    """Of the Rollout, the Canary, or whatever delivers."""
    stable: GivenName
    """What tells the stable arm's series apart, such as its version."""
    canary: GivenName
    namespace: Name = ""
    region: Name = ""
    run: Name = ""
    """Tells one attempt from the next of the same two versions, such as a revision or a pipeline's number."""

    def __str__(self) -> str:
        whose = f"{self.namespace}/{self.name}" if self.namespace else self.name
        more = "".join(f" {word} {said}" for word, said in (("in", self.region), ("run", self.run)) if said)
        return f"{whose} {self.stable} -> {self.canary}{more}"

    @property
    def digest(self) -> str:
        """A name for its file, the same in every process."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:32]

    @property
    def arms(self) -> tuple[ArmKey, ArmKey]:
        """Stable and canary."""
        return (
            ArmKey(region=self.region, role="stable", version=self.stable),
            ArmKey(region=self.region, role="canary", version=self.canary),
        )


class SessionAnswer(Value):
    """What a session says now."""

    key: SessionKey
    outcome: OutcomeName
    """The worst of all gates."""
    reason: str
    """Of the gate that decides it."""
    since: float
    """Unix time in seconds at which its evidence begins."""
    until: float | None
    """To which its evidence reaches; None before the first window has passed."""
    behind: bool
    """Whether there is evidence that it had no time to read yet; it goes on when it is asked again."""
    batches: int
    weight: str
    """What was said last of the canary's share of traffic."""
    verdicts: tuple[GateVerdict, ...]


class SessionLimits(Value):
    """What bounds the sessions of a server."""

    sessions: int = 1000
    """At once; another is refused until one has expired."""
    within: timedelta = timedelta(hours=24)
    """From a session's start to its end: what has no verdict then is inconclusive, and no more is read."""
    expire: timedelta = timedelta(hours=24)
    """After so long in which nobody asked, a session is forgotten."""
    ask_seconds: float = 5.0
    """That one request may read evidence for; the one who asks waits ten, as Argo Rollouts and Flagger do."""


def refuse_one_version(stable: str, canary: str) -> None:
    """Raise UsageError when both arms are one: every gate would pass."""
    if stable == canary:
        raise UsageError(f"stable and canary: found {stable!r} twice; expected two versions")


class TooManySessions(Refused):
    """There is no room for another session now."""
