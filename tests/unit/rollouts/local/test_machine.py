"""Engines that do not fit are refused with numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollouts.local.machine import GIB, RESERVE_BYTES, Admission, measure
from rollouts.model import Engine
from tidegate.core.errors import Refused
from tidegate.testing import an_engine

MACHINE = 8 * GIB


def engine(gib: float) -> Engine:
    return an_engine("7").model_copy(update={"memory_bytes": int(gib * GIB)})


def test_an_engine_that_fits_is_let_in_and_the_reserve_is_not_given_away() -> None:
    with Admission(lambda: MACHINE).starting(engine(7.5)):
        pass
    refused = r"version 7 needs 8\.0 GiB of memory and 7\.5 GiB are free"
    with pytest.raises(Refused, match=refused), Admission(lambda: MACHINE).starting(engine(8)):
        pass
    assert RESERVE_BYTES == GIB // 2


def test_two_that_start_together_do_not_get_the_same_memory_and_what_has_started_is_the_machines_to_count() -> None:
    machine = MACHINE
    admission = Admission(lambda: machine)
    refused = pytest.raises(Refused, match=r"2\.5 GiB are free")
    with admission.starting(engine(5)), refused, admission.starting(engine(5)):
        pass
    machine = 3 * GIB
    with admission.starting(engine(2)):
        pass


def test_the_limit_of_a_container_counts_where_it_has_one(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB // 2}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB // 4}\n")
    assert measure(tmp_path) == GIB * 3 // 4
    (tmp_path / "memory.max").write_text("max\n")
    assert measure(tmp_path) > 0
    assert measure(tmp_path / "no-such-folder") > 0
