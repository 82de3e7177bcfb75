"""What a delivery's SLOs rest on and its engine does not export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slo.metrics import ALTERED_BY
from slo.spec import SloSpec
from tidegate.core.model import SpecConflict


def untold_by_engine(slos: Sequence[SloSpec], args: Mapping[str, object], *, prebuilt: bool) -> Iterator[SpecConflict]:
    """What is wrong with promises on an engine with these arguments of vLLM; `prebuilt` has an entrypoint of its own.

    Some arguments have vLLM export other metrics, and how a start went is known by tidegate's entrypoint alone.
    """
    for argument in ALTERED_BY:
        if slos and args.get(argument):
            found = "metrics that the SLOs are not written on"
            yield SpecConflict(("engine", "vllm", "args", argument), found, "vLLM's own metrics, or no `slos`")
    for index, slo in enumerate(slos):
        if slo.start and prebuilt:
            expected = "an engine that `tidegate engine build` makes: its entrypoint tells how it started"
            yield SpecConflict(("slos", index, "start"), "an SLO on starts with `engine.image`", expected)
