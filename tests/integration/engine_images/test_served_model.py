"""The engine of stories that are about other services answers as vLLM does (`test_engine.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.engines.contract import EngineContract, RunningEngine, running_engine
from fakes.engines.vllm_home import write_vllm_home

from engine_images.adapters.environment import HOME_VARIABLE, PYTHON_VARIABLE


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("engine")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(PYTHON_VARIABLE, raising=False)
        patched.setenv(HOME_VARIABLE, str(write_vllm_home(folder / "home")))
        with running_engine(folder) as running:
            yield running


class TestServedModel(EngineContract): ...
