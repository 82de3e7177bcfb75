"""What keeps `engine build` from beginning is said before anything is downloaded or compiled."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from fakes.services.http import QuietHandler, answering

from engine_images.build.model import BuildRequest
from engine_images.choices import EnginePlatform
from engine_images.errors import EnvironmentMissing
from engine_images.manifest import Launch, ModelContract
from engine_images.model import EngineEnvironment
from tidegate.cli import engine as command
from tidegate.core.errors import OutsideError


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def build(folder: Path, engine: dict[str, object]) -> None:
    said = yaml.safe_load(Path("examples/demo/delivery.yaml").read_text(encoding="utf-8"))
    said["traffic"].pop("prompts")
    spec = folder / "delivery.yaml"
    spec.write_text(yaml.safe_dump(said | {"engine": engine}), encoding="utf-8")
    # Nobody answers there: a build that asks the registry first fails in another way.
    with patch.dict(os.environ, {"TIDEGATE_STATE": str(folder / "state"), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}):
        command.build("models:/support-llm/1", spec)


H100 = {"vllm": {"version": "0.32.0", "args": {"max-model-len": 512}}, "accelerator": "nvidia-h100-80gb"}


def test_an_engine_is_built_where_its_accelerator_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentMissing, match=r"for 1 of nvidia-h100-80gb; this machine has no GPU") as refused:
        build(tmp_path, H100)
    assert refused.value.exit_code == 4


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
