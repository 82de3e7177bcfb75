"""Versions that cannot be served, as real files: each is refused in one clear line."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from engine_images.accelerators import Accelerator
from engine_images.adapters.model_version import read_version
from engine_images.arguments.values import ArgumentValue
from engine_images.checks.servable import problems_of, sampling_of
from engine_images.spec import EngineSettings, SamplingSpec, VllmSpec
from tidegate.testing import write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path)


def settings(*, on: Accelerator = Accelerator.CPU, **args: ArgumentValue) -> EngineSettings:
    named = {"max-model-len": 512, "dtype": "float32"} | {name.replace("_", "-"): value for name, value in args.items()}
    return EngineSettings(vllm=VllmSpec(version="0.32.0", args=named), accelerator=on)


def problems(model: Path, wanted: EngineSettings | None = None, *, machine_bytes: int | None = None) -> list[str]:
    return [
        str(problem) for problem in problems_of(read_version(model), wanted or settings(), machine_bytes=machine_bytes)
    ]


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")


def test_a_model_that_a_real_vllm_serves_has_no_problems(model: Path) -> None:
    assert problems(model) == []
    assert problems(model, settings(on=Accelerator.L4)) == []


def test_a_damaged_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}", encoding="utf-8")
    (problem,) = problems(model)
    assert problem.startswith("tokenizer.json: found no tokenizer: ")


def test_a_missing_and_a_broken_chat_template(model: Path) -> None:
    template = model / "chat_template.jinja"
    template.write_text("{% for %}", encoding="utf-8")
    (broken,) = problems(model)
    assert broken.startswith("chat_template.jinja: found a template that fails: ")
    template.unlink()
    assert problems(model) == ["chat_template.jinja: found nothing; expected the model's chat template"]


def test_a_pickle_under_its_own_name_and_under_another(model: Path) -> None:
    (model / "training_args.bin").write_bytes(pickle.dumps({"learning_rate": 1e-4}))
    (model / "notes.txt").write_bytes(pickle.dumps([1, 2]))
    with zipfile.ZipFile(model / "state.dat", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([1]))
    assert [problem.split(":")[0] for problem in problems(model)] == ["notes.txt", "state.dat", "training_args.bin"]


def test_weights_that_were_cut_short(model: Path) -> None:
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    assert problems(model) == [
        f"model.safetensors: found {len(whole) - 100} bytes, where its header promises {len(whole)}; "
        "expected a whole file"
    ]
    for content in (b"", b"not a model", b"\xff" * 8, b"\x05" + b"\0" * 7 + b"{", b"\x02" + b"\0" * 7 + b"\xff\xfe"):
        weights.write_bytes(content)
        (problem,) = problems(model)
        assert problem.startswith("model.safetensors: found not a safetensors file")


def test_a_configuration_that_is_no_json(model: Path) -> None:
    (model / "config.json").write_text("{", encoding="utf-8")
    (problem,) = problems(model)
    assert problem.startswith("config.json: found no JSON: ")


def test_sampling_defaults_are_the_version_s_unless_the_spec_changes_them(model: Path) -> None:
    change(model / "generation_config.json", temperature=0.6, top_p=0.95, max_new_tokens=256)
    assert sampling_of(read_version(model), settings()) == {"max_tokens": 256, "temperature": 0.6, "top_p": 0.95}
    colder = settings().model_copy(update={"sampling": SamplingSpec(temperature=0.2)})
    assert sampling_of(read_version(model), colder) == {"max_tokens": 256, "temperature": 0.2, "top_p": 0.95}
