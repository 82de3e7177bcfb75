"""The manifest that a build writes is the one that the entrypoint reads."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from engine_images import entrypoint
from engine_images.entrypoint.journal import BadSettings
from engine_images.entrypoint.manifest import parse
from engine_images.manifest import CompileKey, EngineManifest, Launch, ModelContract
from engine_images.oci.compose import manifest_bytes

FOLDER = Path(entrypoint.__file__).parent
BROUGHT_BY_VLLM = {"cryptography", "httpx", "prometheus_client", "torch", "vllm"}

BUILT = EngineManifest(
    engine="e1",
    model=ModelContract(name="support-llm", version="7", digest="d1", files={"config.json": "sha256:ab", "a/b": "cd"}),
    launch=Launch(arguments=("--port", "{port}"), environment={"A": "b"}, drain_seconds=30, warm_up=(1, 8)),
    key=CompileKey(factors={"torch": "2.13.0"}),
    cache={"aot/model": "ef"},
)


def test_what_a_build_writes_is_read() -> None:
    engine = parse(manifest_bytes(BUILT))
    assert (engine.model, engine.version, engine.model_digest) == ("support-llm", "7", "d1")
    assert engine.files == {"config.json": "ab", "a/b": "cd"}
    assert (engine.arguments, engine.environment, engine.warm_up) == (("--port", "{port}"), {"A": "b"}, (1, 8))
    assert (engine.drain_seconds, engine.factors, engine.cache) == (30.0, {"torch": "2.13.0"}, {"aot/model": "ef"})


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x"])
def test_no_file_leaves_its_folder(path: str) -> None:
    document = json.loads(manifest_bytes(BUILT))
    document["model"]["files"] = {path: "ab"}
    with pytest.raises(BadSettings, match="would leave its folder"):
        parse(json.dumps(document).encode())


def test_the_folder_runs_where_only_vllm_is_installed() -> None:
    strange = set()
    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                strange |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                strange |= {node.module.split(".")[0]}
    assert strange - set(sys.stdlib_module_names) - BROUGHT_BY_VLLM == set()


def test_images_copy_every_file_of_the_folder() -> None:
    assert {file.suffix for file in FOLDER.iterdir() if file.is_file()} == {".py"}
