"""Whatever somebody else wrote ends in the error of its source, in one line, and in nothing else."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from fakes.bodies import BODIES
from fakes.delivery.store import MemoryStore
from fakes.services.http import page

from engine_images.adapters.oci_build import base_at
from engine_images.adapters.oci_layout import INDEX_FILE, OciLayout
from engine_images.adapters.oci_registry import find_credentials
from engine_images.errors import BrokenImage, RegistryRefused
from engine_images.oci.model import CONFIG, LAYER, MANIFEST, Platform, canonical
from engine_images.oci.reading import read_engine
from gates.answers.golden import load_golden
from gates.reports.evidence import judge_evidence
from gates.sequential_test import AnalysisPlan
from gates.transcript import read, replay
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import prompts_in
from registry.conventions import ADOPTED, DIGEST
from registry.errors import UnfitModel
from registry.files import architecture_of, whole_digest
from registry.versions import MlflowRegistry
from rollouts.errors import FleetError
from rollouts.kube.kubeconfig import namespace_of
from tidegate.core.adapters.prometheus import PrometheusClient, PrometheusUnreachable
from tidegate.core.errors import TidegateError
from tidegate.core.spec import SpecError, load_spec


def oci_index(body: bytes, folder: Path) -> None:
    (folder / INDEX_FILE).write_bytes(body)
    OciLayout(folder).manifest()


def oci_manifest(body: bytes, folder: Path) -> None:
    layout = OciLayout(folder)
    layout.name(layout.put(body, MANIFEST), "x")
    read_engine(OciLayout(folder, "x"))


def oci_base(body: bytes, folder: Path) -> None:
    layout = OciLayout(folder)
    config = layout.put(body, CONFIG).to_dict()
    layers = [layout.put(b"", LAYER).to_dict()]
    layout.name(layout.put(canonical({"config": config, "layers": layers}), MANIFEST), "x")
    base_at(f"{folder}:x", Platform(architecture="amd64"))


def docker_config(body: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(body)
    find_credentials("r", folder / "config.json")


def model_config(body: bytes, folder: Path) -> None:
    described = {"config.json": body, "tokenizer.json": b"{}"}
    architecture_of("m", ["a.safetensors", *described], described.__getitem__)


def version_tags(body: bytes, folder: Path) -> None:
    store = MemoryStore()
    said = {DIGEST: whole_digest({}), ADOPTED: body.decode(errors="replace")}
    store.add_version("m", store.begin_files("e", "m", "k").source, tags=said)
    MlflowRegistry(store).look_up("m", "1")


def kubeconfig(body: bytes, folder: Path) -> None:
    (folder / "config").write_bytes(body)
    namespace_of(None, kubeconfig=str(folder / "config"))


def file(read: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    def reader(body: bytes, folder: Path) -> None:
        (folder / "file").write_bytes(body)
        read(folder / "file")

    return reader


def evidence(body: bytes, folder: Path) -> None:
    judge_evidence(AnalysisPlan.model_validate({"latency": {"max_increase": "20%"}}), [body], name="")


def transcript(body: bytes, folder: Path) -> None:
    replay(read(StringIO(body.decode(errors="replace") + "\n"), file="t.jsonl"), file="t.jsonl")


def prometheus(body: bytes, folder: Path) -> None:
    with page(lambda: body, "application/json") as address:
        PrometheusClient(f"http://{address}", timeout_seconds=5).query("x")


READERS: dict[str, tuple[Callable[[bytes, Path], None], type[TidegateError]]] = {
    "OCI index": (oci_index, BrokenImage),
    "OCI manifest": (oci_manifest, BrokenImage),
    "OCI configuration of a base": (oci_base, BrokenImage),
    "docker's config.json": (docker_config, RegistryRefused),
    "config.json of a model": (model_config, UnfitModel),
    "tags of a version": (version_tags, UnfitModel),
    "kubeconfig": (kubeconfig, FleetError),
    "golden set": (file(load_golden), SpecError),
    "prompts": (file(prompts_in), SpecError),
    "spec": (file(lambda path: load_spec(path, Delivery)), SpecError),
    "evidence": (evidence, SpecError),
    "transcript": (transcript, SpecError),
    "Prometheus": (prometheus, PrometheusUnreachable),
}


@pytest.mark.parametrize("source", READERS)
def test_a_bad_body_is_the_error_of_its_source(source: str, tmp_path: Path) -> None:
    read, expected = READERS[source]
    refused = 0
    for at, body in enumerate(BODIES):
        folder = tmp_path / str(at)
        folder.mkdir()
        try:
            read(body, folder)
        except expected as error:
            refused += 1
            assert max(map(len, str(error).splitlines())) < 1000, body[:60]
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"{body[:60]!r}: {type(error).__name__}: {str(error)[:200]}")
    assert refused
