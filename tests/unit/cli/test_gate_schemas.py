"""The published schemas agree with what the commands read and write."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import yaml
from fakes.metrics.samples import Serving, in_buckets, mirrored, traffic

from tidegate.cli.project import schema_text

EXAMPLE = Path(__file__).parents[3] / "examples" / "gates"


def schema(kind: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema_text(kind)))


def example_lines() -> list[bytes]:
    return (EXAMPLE / "evidence.jsonl").read_bytes().splitlines()


def test_the_example_is_what_the_schemas_describe() -> None:
    schema("gates").validate(yaml.safe_load((EXAMPLE / "gates.yaml").read_text()))
    batches = schema("batch")
    for line in example_lines():
        batches.validate(json.loads(line))


def test_whatever_an_adapter_brings_is_a_batch_of_the_schema() -> None:
    canary, stable = Serving(per_second=2, scored=0.5), Serving(per_second=5, pods=3)
    of_traffic, batches = list(traffic(canary, stable, looks=3)), schema("batch")
    for batch in [*of_traffic, *map(in_buckets, of_traffic), *mirrored(3, lost=0.3)]:
        batches.validate(json.loads(batch.model_dump_json()))
