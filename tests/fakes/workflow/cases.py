"""The specs of `tests/golden/workflows`, and what is rendered for them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pipelines.spec.delivery import Delivery
from pipelines.workflow.model import WorkflowInput
from tidegate.core.model import Json
from tidegate.core.spec import load_spec

GOLDEN = Path(__file__).parents[2] / "golden" / "workflows"
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@lru_cache
def blueprint(case: str) -> WorkflowInput:
    # Here, as below: Hera takes a second to load, which who asks for `GOLDEN` alone does not need.
    from pipelines.workflow.render import blueprint_of

    path = GOLDEN / case / "delivery.yaml"
    return blueprint_of(load_spec(path, Delivery), path)


@lru_cache
def objects(case: str) -> tuple[Json, ...]:
    from pipelines.workflow.render import rendered

    return rendered(blueprint(case))


def template(case: str) -> Json:
    """The WorkflowTemplate alone."""
    return objects(case)[-1]
