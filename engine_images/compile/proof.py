"""Whether a compile cache does what it is for. A line in a log is not enough: each of these was once true alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine_images.compile.logprobs import Agreement
from engine_images.compile.start_log import StartLog
from engine_images.manifest import CompileKey
from tidegate.core.model import Value

MOST_OF_A_COLD_START = 0.5
"""A start that needs more of the cold start's initialization has built something again, whatever it logged."""


class Started(Value):
    """One start of the engine."""

    log: StartLog
    seconds: float
    """From the process' start until its first answer."""
    memory_bytes: int
    """Proportional set size of all its processes once it has answered."""
    key: CompileKey | None
    """What decided which compiled model fits; None when it ran eagerly."""


class Proof(Value):
    """What the build found out about its compile cache."""

    cold: Started
    built: Started
    eager: Started
    rebuilt: tuple[str, ...]
    """Files that the built engine added to its cache: kernels that it should have found there."""
    agreement: Agreement | None
    """None when the built engine did not come so far as to answer."""
    tolerance: float
    """The largest difference in log-probability that the build accepts."""

    def problems(self) -> tuple[str, ...]:
        """Why this cache must not be served; empty when it may."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        log = self.built.log
        if not log.loaded:
            yield f"the compile cache was missed: {self._why()}"
        elif self.rebuilt:
            yield f"the compiled model was loaded, but {len(self.rebuilt)} of its kernels were built again"
        cold, built = self.cold.log.init_seconds, log.init_seconds
        if cold and built and built > MOST_OF_A_COLD_START * cold:
            yield f"the built engine took {built:.1f} s to initialize, a cold one {cold:.1f} s"
        if self.agreement and not self.agreement.within(self.tolerance):
            yield (
                f"compiled and eager differ by up to {self.agreement.largest:.3g} in log-probability; "
                f"{self.tolerance:g} is accepted"
            )

    def _why(self) -> str:
        if self.built.log.refused:
            return self.built.log.refused
        if self.cold.key is None or self.built.key is None:
            return "vLLM computed no key"
        return "; ".join(named(self.cold.key.differences(self.built.key))) or "the keys are the same"


def named(differences: tuple[str, ...]) -> tuple[str, ...]:
    """Without the hash of a part whose own fields say what differs."""
    parts = {line.split(".", 1)[0] for line in differences if ".hash:" not in line}
    return tuple(line for line in differences if ".hash:" not in line or line.split(".", 1)[0] not in parts)


def added(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Kernels that are in the cache after a start and were not before. Empty lock files are none."""
    return tuple(sorted(path for path in after.keys() - before.keys() if path.endswith((".so", ".cubin", ".o"))))
