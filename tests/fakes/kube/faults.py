"""What can go wrong between a client and a cluster, on demand and in a known order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fakes.kube.call import Call
from fakes.kube.refusal import Refusal, conflict, expired

WRITES = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class Refuse:
    """An answer of failure instead of the answer; nothing is done."""

    refusal: Refusal


@dataclass(frozen=True)
class LoseRequest:
    """The connection does not come about; nothing is done."""


@dataclass(frozen=True)
class LoseAnswer:
    """It is done, and the connection breaks before the answer."""


@dataclass(frozen=True)
class Meanwhile:
    """Something happens just before the request is served, such as somebody else's write to the same object."""

    happens: Callable[[Call], None]


@dataclass(frozen=True)
class CutStream:
    """A watch ends without a word after so many events."""

    after: int = 0


@dataclass(frozen=True)
class ExpireStream:
    """A watch is told with an ERROR event of 410 that its version is too old, after so many events."""

    after: int = 0


Effect = Refuse | LoseRequest | LoseAnswer | Meanwhile | CutStream | ExpireStream


@dataclass
class Fault:
    """An effect on the calls that match, so many times."""

    effect: Effect
    verbs: tuple[str, ...] = ()
    """Empty for all."""
    plural: str = ""
    name: str = ""
    subresource: str | None = None
    times: int | None = 1
    """None for always."""
    after: int = 0
    """Matching calls that pass first."""

    def strikes(self, call: Call) -> bool:
        """Whether it does, counted."""
        if (
            (self.verbs and call.verb not in self.verbs)
            or (self.plural and call.plural != self.plural)
            or (self.name and call.name != self.name)
            or (self.subresource is not None and call.subresource != self.subresource)
            or self.times == 0
        ):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults of one cluster, and whether it can be reached at all."""

    def __init__(self) -> None:
        self.vanished = False
        """Every request fails to connect and every watch is cut, until it is back."""
        self._faults: list[Fault] = []
        self._once_each: list[tuple[Fault, set[Call]]] = []

    def add(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()
        self._once_each.clear()
        self.vanished = False

    def once_each(self, fault: Fault) -> None:
        """The first call of every kind (verb, object, subresource) that matches meets it; the second passes."""
        fault.times = None
        self._once_each.append((fault, set()))

    def conflict_on_every_write(self) -> None:
        """Each write is first refused with 409, as if somebody else had just written the object."""
        self.once_each(Fault(Refuse(conflict("object", "")), verbs=("update", "patch")))

    def busy(self, *, retry_after: int = 1, verbs: tuple[str, ...] = (), times: int | None = 1) -> None:
        """429 with Retry-After (API Priority and Fairness)."""
        refusal = Refusal(429, "TooManyRequests", "too many requests, please try again later", retry_after=retry_after)
        self.add(Fault(Refuse(refusal), verbs=verbs, times=times))

    def failing(self, *, code: int = 500, verbs: tuple[str, ...] = (), times: int | None = 1) -> None:
        """5xx: what etcd's leader election, a proxy or a rolling upgrade of the control plane looks like."""
        reason = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}.get(code, "")
        refusal = Refusal(code, reason, f"an error on the server ({reason or code}) has prevented the request")
        self.add(Fault(Refuse(refusal), verbs=verbs, times=times))

    def expired_version(self, *, as_status: bool = False, times: int | None = 1) -> None:
        """410 for the next watch: as an ERROR event (the watch cache) or as the answer's status (etcd, gateways)."""
        effect = Refuse(expired("too old resource version: 1 (2)")) if as_status else ExpireStream()
        self.add(Fault(effect, verbs=("watch",), times=times))

    def cut_every_watch(self, *, after: int = 1, times: int | None = None) -> None:
        """Each watch ends after so many events."""
        self.add(Fault(CutStream(after), verbs=("watch",), times=times))

    def struck(self, call: Call) -> list[Effect]:
        """What this call meets: the first fault that fits, and whatever happens meanwhile."""
        effects: list[Effect] = []
        for fault, seen in [*((one, None) for one in self._faults), *self._once_each]:
            if (seen is None or call not in seen) and fault.strikes(call):
                if seen is not None:
                    seen.add(call)
                effects.append(fault.effect)
                if not isinstance(fault.effect, Meanwhile):
                    break
        return effects
