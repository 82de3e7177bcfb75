"""Engines that do not fit are refused with numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rollouts.errors import CapacityError
from rollouts.local.machine import (
    ENGINES_PER_CORE,
    GIB,
    RESERVE_BYTES,
    Admission,
    GpuMemory,
    Machine,
    check,
    measure,
    place,
)
from rollouts.model import Engine
from tidegate.testing import an_engine

MACHINE = Machine(available_bytes=8 * GIB, cores=2)


def engine(gib: float) -> Engine:
    return an_engine("7").model_copy(update={"memory_bytes": int(gib * GIB)})


def test_an_engine_that_fits_is_let_in() -> None:
    check(engine(7.5), MACHINE, starting_bytes=0, engines=0)


def test_the_reserve_is_not_given_away() -> None:
    with pytest.raises(CapacityError, match=r"version 7 needs 8\.0 GiB of memory and 7\.5 GiB are free"):
        check(engine(8), MACHINE, starting_bytes=0, engines=0)
    assert RESERVE_BYTES == GIB // 2


def test_a_core_carries_a_handful_of_engines() -> None:
    check(engine(1), MACHINE, starting_bytes=0, engines=2 * ENGINES_PER_CORE - 1)
    with pytest.raises(CapacityError, match="8 engines run on 2 cores; at most 8 may"):
        check(engine(1), MACHINE, starting_bytes=0, engines=2 * ENGINES_PER_CORE)


def test_two_that_start_together_do_not_get_the_same_memory() -> None:
    admission = Admission(lambda: MACHINE)
    admission.admit(engine(5))
    with pytest.raises(CapacityError, match=r"2\.5 GiB are free"):
        admission.admit(engine(5))


def test_what_has_started_is_counted_by_the_machine_alone() -> None:
    machine = MACHINE
    admission = Admission(lambda: machine)
    ticket = admission.admit(engine(5))
    ticket.settled = True
    machine = replace(MACHINE, available_bytes=3 * GIB)
    admission.admit(engine(2))


def test_a_place_that_is_given_back_is_free_again() -> None:
    admission = Admission(lambda: MACHINE)
    ticket = admission.admit(engine(5))
    admission.release(ticket)
    admission.release(ticket)
    admission.admit(engine(5))


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB // 2}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB // 4}\n")
    assert measure(tmp_path).available_bytes == GIB * 3 // 4


def test_a_container_without_limit_has_the_whole_machine(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1\n")
    (tmp_path / "memory.stat").write_text("inactive_file 0\n")
    assert measure(tmp_path).available_bytes > 0
    assert measure(tmp_path / "no-such-folder").cores >= 1


H100 = "NVIDIA H100 80GB HBM3"


def on_gpus(gib: float, gpus: int = 1) -> Engine:
    return an_engine("7").model_copy(
        update={"memory_bytes": 1, "gpus": gpus, "gpu_bytes": int(gib * GIB), "gpu_names": (H100,)}
    )


def gpu(index: int, free: float, name: str = H100) -> GpuMemory:
    return GpuMemory(index=index, name=name, free_bytes=int(free * GIB))


def test_an_engine_gets_the_gpu_with_most_free_memory_of_those_that_it_is_for() -> None:
    seen = [gpu(0, 10), gpu(1, 30), gpu(2, 90, name="NVIDIA B200"), gpu(3, 30)]
    assert place(on_gpus(8), seen, {}) == (1,)
    assert place(on_gpus(8), seen, {1: int(25 * GIB)}) == (3,)
    assert place(on_gpus(8, gpus=3), seen, {}) == (1, 3, 0)
    assert place(engine(1), seen, {}) == ()


def test_an_engine_for_which_no_gpu_has_room_is_refused_with_numbers() -> None:
    with pytest.raises(CapacityError) as caught:
        place(on_gpus(8), [gpu(0, 7.5), gpu(1, 3)], {})
    assert str(caught.value) == (
        "version 7 needs 8.0 GiB of GPU memory and 7.5 GiB are free; "
        "stop something, or give the engine less memory: engine.vllm.args.kv-cache-memory-bytes"
    )
    assert caught.value.detail == (
        f"GPU 0 ({H100}): free 7.5 GiB, promised to starting engines 0.0 GiB; "
        f"GPU 1 ({H100}): free 3.0 GiB, promised to starting engines 0.0 GiB"
    )
    with pytest.raises(CapacityError, match=r"on each of 2 GPUs and 9\.0 GiB, 3\.0 GiB are free"):
        place(on_gpus(8, gpus=2), [gpu(0, 9), gpu(1, 3)], {})
    with pytest.raises(CapacityError, match="and no NVIDIA H100 80GB HBM3 is here"):
        place(on_gpus(8), [gpu(0, 90, name="NVIDIA L4")], {})


def test_engines_that_start_together_are_spread_over_gpus_and_never_get_the_same_memory() -> None:
    admission, seen = Admission(lambda: MACHINE), [gpu(0, 10), gpu(1, 10)]
    tickets = [admission.admit(on_gpus(6), seen) for _ in range(2)]
    assert [ticket.gpus for ticket in tickets] == [(0,), (1,)]
    with pytest.raises(CapacityError, match=r"4\.0 GiB are free"):
        admission.admit(on_gpus(6), seen)
    # What has started is seen by the driver.
    tickets[0].settled = True
    assert admission.admit(on_gpus(6), [gpu(0, 8), gpu(1, 10)]).gpus == (0,)
    admission.release(tickets[1])
    assert admission.admit(on_gpus(6), [gpu(0, 8), gpu(1, 10)]).gpus == (1,)


def test_a_process_sees_its_gpus_and_no_others() -> None:
    ticket = Admission(lambda: MACHINE).admit(on_gpus(6, gpus=2), [gpu(0, 10), gpu(1, 20), gpu(3, 30)])
    assert ticket.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3,1"}
    assert Admission(lambda: MACHINE).admit(engine(1)).environment == {}
