"""The published schemas agree with what the commands read and write."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from tidegate.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_examples_are_what_the_schemas_describe(capsys: pytest.CaptureFixture[str]) -> None:
    def schema(kind: str) -> jsonschema_rs.Draft202012Validator:
        assert main(["schema", kind]) == 0
        return jsonschema_rs.Draft202012Validator(json.loads(capsys.readouterr().out))

    schema("delivery").validate(yaml.safe_load((EXAMPLES / "kubernetes/delivery.yaml").read_text()))
    schema("gates").validate(yaml.safe_load((EXAMPLES / "gates/gates.yaml").read_text()))
    batches = schema("batch")
    for line in (EXAMPLES / "gates/evidence.jsonl").read_bytes().splitlines():
        batches.validate(json.loads(line))
