"""What keeps `engine build` from beginning is said before anything is downloaded or compiled."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from fakes.engines.engine_image import base_with
from fakes.engines.vllm_home import STOCK
from fakes.services.http import QuietHandler, answering

from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.adapters.oci_build import this_platform
from engine_images.build.model import BuildRequest
from engine_images.choices import EnginePlatform
from engine_images.errors import EnvironmentMissing
from engine_images.manifest import Launch, ModelContract
from engine_images.model import EngineEnvironment
from tidegate.cli import engine as command
from tidegate.core.errors import OutsideError

SITE = STOCK.site_packages[0]


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def stock_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Says of itself what the Python of an image with vLLM for CUDA says."""
    named = program(tmp_path / "python3", f"cat <<'END'\n{STOCK.model_dump_json()}\nEND")
    monkeypatch.setenv(PYTHON_VARIABLE, str(named))
    return named


@pytest.fixture
def an_h100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def system(root: Path, *places: str) -> str:
    """An operating system on this disk that holds these files."""
    base_with(root, dict.fromkeys(places, b""), platform=this_platform())
    return f"{root}:base"


def build(folder: Path, engine: dict[str, object], *, base: str | None = None) -> None:
    said = yaml.safe_load(Path("examples/demo/delivery.yaml").read_text(encoding="utf-8"))
    said["traffic"].pop("prompts")
    spec = folder / "delivery.yaml"
    spec.write_text(yaml.safe_dump(said | {"engine": engine}), encoding="utf-8")
    # Nobody answers there: a build that asks the registry first fails in another way.
    with patch.dict(os.environ, {"TIDEGATE_STATE": str(folder / "state"), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}):
        command.build("models:/support-llm/1", spec, base=base)


H100 = {"vllm": {"version": "0.32.0", "args": {"max-model-len": 512}}, "accelerator": "nvidia-h100-80gb"}


def test_an_engine_is_built_where_its_accelerator_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentMissing, match=r"for 1 of nvidia-h100-80gb; this machine has no GPU") as refused:
        build(tmp_path, H100)
    assert refused.value.exit_code == 4


@pytest.mark.usefixtures("an_h100")
@pytest.mark.slow(reason="an environment is inspected in a process")
def test_a_base_that_has_what_the_engine_needs_is_taken(tmp_path: Path, stock_python: Path) -> None:
    places = ("/usr/bin/gcc", str(stock_python), f"{SITE}/vllm-0.32.0.dist-info/METADATA")
    # The next one that is asked is the registry.
    with pytest.raises(OutsideError, match=r"127\.0\.0\.1"):
        build(tmp_path, H100, base=system(tmp_path / "os", *places))


def test_an_environment_that_does_not_tell_its_key_is_refused(tmp_path: Path) -> None:
    from engine_images.adapters.builder import key_of

    python = program(tmp_path / "python3", "echo 'ImportError: libcudart.so.13' >&2; exit 1")
    request = BuildRequest(
        model=ModelContract(name="tiny", version="1", digest="1", files={}),
        served_name="tiny",
        folder=tmp_path,
        launch=Launch(arguments=(), environment={}, drain_seconds=0),
        environment=EngineEnvironment(python=str(python), vllm="0.32.0", recipe="r", platform=EnginePlatform.CUDA),
        entrypoint="e",
        compiled=True,
        tolerance=0.01,
        memory_bytes=0,
    )
    with pytest.raises(EnvironmentMissing, match=f"{python} does not tell its compile key") as refused:
        key_of(request, tmp_path / "root")
    assert refused.value.detail is not None
    assert "libcudart.so.13" in refused.value.detail


class NoLogprobs(QuietHandler):
    """An engine that answers as vLLM does where log-probabilities are refused."""

    def do_POST(self) -> None:
        self.answer(
            '{"error": {"message": "logprobs are off"}}', HTTPStatus.BAD_REQUEST, content_type="application/json"
        )


async def test_an_engine_without_log_probabilities_is_named() -> None:
    from engine_images.adapters.builder import score_prompts

    with (
        answering(NoLogprobs) as address,
        pytest.raises(OutsideError, match=r"gives no log-probabilities: .*logprobs are off"),
    ):
        await score_prompts(f"http://{address}", "tiny", ["Hello!"])
