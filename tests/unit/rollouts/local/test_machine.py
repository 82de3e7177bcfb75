"""Engines that do not fit are refused with numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollouts.local.machine import (
    GIB,
    RESERVE_BYTES,
    Admission,
    measure,
)
from rollouts.model import Engine
from tidegate.core.errors import Refused
from tidegate.testing import an_engine

MACHINE = 8 * GIB


def engine(gib: float) -> Engine:
    return an_engine("7").model_copy(update={"memory_bytes": int(gib * GIB)})


def test_an_engine_that_fits_is_let_in_and_the_reserve_is_not_given_away() -> None:
    Admission(lambda: MACHINE).admit(engine(7.5))
    with pytest.raises(Refused, match=r"version 7 needs 8\.0 GiB of memory and 7\.5 GiB are free"):
        Admission(lambda: MACHINE).admit(engine(8))
    assert RESERVE_BYTES == GIB // 2


def test_two_that_start_together_do_not_get_the_same_memory() -> None:
    admission = Admission(lambda: MACHINE)
    admission.admit(engine(5))
    with pytest.raises(Refused, match=r"2\.5 GiB are free"):
        admission.admit(engine(5))


def test_what_has_started_is_counted_by_the_machine_alone() -> None:
    machine = MACHINE
    admission = Admission(lambda: machine)
    ticket = admission.admit(engine(5))
    ticket.settled = True
    machine = 3 * GIB
    admission.admit(engine(2))


def test_a_place_that_is_given_back_is_free_again() -> None:
    admission = Admission(lambda: MACHINE)
    ticket = admission.admit(engine(5))
    admission.release(ticket)
    admission.release(ticket)
    admission.admit(engine(5))


def test_the_limit_of_a_container_counts_where_it_has_one(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB // 2}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB // 4}\n")
    assert measure(tmp_path) == GIB * 3 // 4
    (tmp_path / "memory.max").write_text("max\n")
    assert measure(tmp_path) > 0
    assert measure(tmp_path / "no-such-folder") > 0
