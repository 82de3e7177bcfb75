"""Whether a changed object is still what its kind's schema says."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.manifests.schema import problems_in
from tidegate.core.model import Json, Loc


def schema_problems(seen: Json) -> Iterable[tuple[Loc, str]]:
    """Places and what is wrong there; none where what reads schemas is not installed: the API server says it later."""
    try:
        return [(problem.where, problem.message) for problem in problems_in(seen)]
    except ImportError:
        return ()
