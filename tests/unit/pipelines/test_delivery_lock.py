"""One delivery at a time on a machine; the kernel knows whether its process lives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import delivery_lock as lock
from pipelines.delivery_lock import delivery_lock, one_rollback, rollback_runs
from registry.errors import DeliveryRuns
from rollouts.local.locks import holder
from tidegate.core.errors import ExitCode

DELIVERY = """
import sys, time
from pathlib import Path
from pipelines.delivery_lock import delivery_lock
with delivery_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "delivery.lock"


@pytest.fixture
def delivery(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", DELIVERY, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_delivery_is_refused_with_the_process_of_the_first(
    path: Path, delivery: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(DeliveryRuns) as caught, delivery_lock(path):
        pass
    assert caught.value.message == f"another delivery runs here (process {delivery.pid})"
    assert caught.value.hint is not None
    assert "tidegate rollback" in caught.value.hint
    assert caught.value.exit_code is ExitCode.USAGE
    assert holder(path) == delivery.pid


def test_a_process_that_is_killed_lets_go(path: Path, delivery: subprocess.Popen[str]) -> None:
    delivery.kill()
    delivery.wait()
    assert holder(path) is None
    with delivery_lock(path):
        assert holder(path) == os.getpid()


def test_a_shorter_process_number_leaves_nothing_of_a_longer_one(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("123456789012")
    with delivery_lock(path):
        assert path.read_text() == str(os.getpid())


def test_looking_for_the_holder_takes_the_lock_from_nobody(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("4711")
    with path.open() as looking:
        import fcntl

        fcntl.flock(looking, fcntl.LOCK_SH)
        assert holder(path) is None


async def test_rollbacks_of_one_machine_go_one_after_the_other(tmp_path: Path) -> None:
    assert not rollback_runs(tmp_path)
    code = "import asyncio, sys; from pathlib import Path; from pipelines.delivery_lock import one_rollback\n"
    code += "async def wait():\n async with one_rollback(Path(sys.argv[1]), print): print('mine')\nasyncio.run(wait())"
    async with one_rollback(tmp_path, lambda _: None):
        assert rollback_runs(tmp_path)
        second = subprocess.Popen([sys.executable, "-uc", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "another rollback runs here; waiting for it\n"
    with second.stdout:
        assert second.stdout.read() == "mine\n"
    assert second.wait() == 0


async def test_where_nothing_can_be_written_a_rollback_goes_on_without_a_lock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with one_rollback(tmp_path / "file", lambda _: None):
        assert not rollback_runs(tmp_path / "nowhere")
