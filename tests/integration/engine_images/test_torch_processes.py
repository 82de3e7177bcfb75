"""What becomes of a trial's process: the engine environment's Python is a stand-in that says what a real one may."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine_images.adapters.torch_runner import MARK, TorchProcesses
from engine_images.build.torch_run import NoRoom, OtherKey, RunFailed, TorchJob, TorchWorkload
from engine_images.model import EngineEnvironment
from tidegate.core.errors import TidegateError

pytestmark = pytest.mark.long

JOB = TorchJob(subject=TorchWorkload(factory="tiny.py:tiny"))
ANSWERS = "Path(order['result']).write_text(json.dumps({}))"


async def factors(folder: Path, body: str, *, told: list[str] | None = None, seconds: float = 60) -> dict[str, str]:
    """What a trial answers that runs this Python."""
    python = folder / "python"
    program = f"import json, os, sys, time\nfrom pathlib import Path\norder = json.load(sys.stdin)\n{body}\n"
    python.write_text(f"#!{sys.executable}\n{program}")
    python.chmod(0o755)
    environment = EngineEnvironment(python=str(python), vllm="0.32.0", recipe="r")
    jobs = TorchProcesses(environment, folder, timeout_seconds=seconds)
    return await jobs.factors(JOB, (told if told is not None else []).append)


async def test_a_trial_reads_its_job_and_its_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    said = f"print({MARK!r} + 'compiles', file=sys.stderr)\n"
    answer = "{'factors': {'model': order['factory'], 'cache': os.environ['TORCHINDUCTOR_CACHE_DIR']}}"
    found = await factors(tmp_path, said + ANSWERS.format(answer), told=told)
    assert found["model"] == "tiny.py:tiny"
    assert found["cache"].startswith(f"{tmp_path}/process-")
    assert told == ["compiles"]
    assert not list(tmp_path.glob("process-*")), "its folder goes with it"


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (
            ANSWERS.format("{'error': {'kind': 'other_key', 'message': 'built elsewhere', 'detail': ''}}"),
            OtherKey,
            "built elsewhere",
        ),
        ("sys.exit('no torch here')", RunFailed, "the trial died with exit code 1: no torch here"),
        ("os.kill(os.getpid(), 9)", NoRoom, "the kernel killed the trial"),
    ],
)
async def test_what_a_trial_dies_of_is_one_line(
    tmp_path: Path, body: str, error: type[TidegateError], said: str
) -> None:
    with pytest.raises(error) as caught:
        await factors(tmp_path, body)
    assert said in str(caught.value)


async def test_a_trial_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="not over after"):
        await factors(tmp_path, "time.sleep(600)", seconds=0.2)
