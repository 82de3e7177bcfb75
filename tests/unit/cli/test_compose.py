"""Commands find their adapters by what the person said, and read everything before they start anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.adapters.this_machine import start_users
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from tidegate.core.errors import UsageError
from tidegate.core.spec import parse_spec

NO_PROMPTS = """\
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}}
gates: {errors: {}}
stages: [{canary: {gates: [errors]}}]
regions: {waves: [[eu-west-1]]}
"""


class NoHost:
    """A fleet host that nobody may ask."""

    def regions(self) -> dict[str, str]:
        raise AssertionError("no user may be sent before the prompts are known")


def test_nobody_plays_users_whose_questions_are_unknown(tmp_path: Path) -> None:
    spec = parse_spec(NO_PROMPTS, Delivery, file="delivery.yaml")
    with pytest.raises(UsageError) as caught:
        start_users(spec, tmp_path, StateFolder(tmp_path), NoHost())  # type: ignore[arg-type]
    assert str(caught.value) == "--users needs prompts to send; set traffic.prompts"
    assert list(tmp_path.iterdir()) == []
