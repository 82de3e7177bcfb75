"""Gates of the offline stage that have nothing to ask, or nobody who reaches what is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gates.analyses.outside.spec import WebhookGate
from gates.analyses.quality import QualityGate
from pipelines.spec.trust import LOOPBACK
from tidegate.core.model import SpecConflict, SpecModel


def offline_conflicts(
    asked: Sequence[str], gates: Mapping[str, SpecModel], *, has_dataset: bool, on_this_machine: bool
) -> Iterator[SpecConflict]:
    """Quality without questions, and a service that cannot reach what it is asked about.

    Args:
        asked: the gates of the stage.
        gates: the settings of all gates, by name.
        has_dataset: whether the stage names a golden set.
        on_this_machine: whether its engines have loopback addresses.
    """
    for place, gate in enumerate(asked):
        settings = gates.get(gate)
        if isinstance(settings, QualityGate) and not has_dataset:
            yield SpecConflict((), f"no dataset, and gate {gate}", "dataset: the golden set that is asked")
        if isinstance(settings, WebhookGate) and on_this_machine and settings.host not in LOOPBACK:
            found = f"'{gate}' of {settings.host}, which does not reach engines of this machine"
            expected = "a service on this machine, or `fleet: {kind: argo, ...}`"
            yield SpecConflict(("gates", place), found, expected)
