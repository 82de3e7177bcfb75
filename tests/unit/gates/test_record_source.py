"""What users saw, read while the load still writes and while several regions ask."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gates.adapters.records import RecordSource
from gates.evidence.batch import ArmName, PodEvidence
from gates.evidence.request_record import RecordReader, RequestRecord
from gates.model import ArmKey, Counts
from tidegate.core.errors import OutsideError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STABLE = ArmKey(region="eu-west-1", role="stable", version="1")
CANARY = ArmKey(region="eu-west-1", role="canary", version="2")


def a_record(second: float, arm: ArmKey = CANARY, **changes: object) -> RequestRecord:
    """A request that ended so many seconds after noon."""
    known: dict[str, object] = {
        "started": NOON.timestamp() + second - 0.5, "region": arm.region, "role": arm.role, "version": arm.version,
        "status": 200, "ok": True, "ttft_seconds": 0.1, "itl_mean_seconds": 0.02, "duration_seconds": 0.5,
        "output_tokens": 21,
    }  # fmt: skip
    return RequestRecord.model_validate(known | changes)


def write(path: Path, *records: RequestRecord) -> None:
    with path.open("a") as file:
        file.writelines(record.model_dump_json() + "\n" for record in records)


def counted(source: RecordSource, *, since: float = 0, until: float = 60) -> dict[ArmName, Counts]:
    """The requests of each arm between two seconds after noon."""
    batch = source.batch(STABLE, CANARY, NOON + timedelta(seconds=since), NOON + timedelta(seconds=until))
    return {pod.arm: Counts(total=pod.requests, failed=pod.errors, refused=pod.refused) for pod in batch.arms}


def canary(total: int, *, failed: int = 0, refused: int = 0) -> dict[ArmName, Counts]:
    """What is counted when no other arm has requests."""
    return {ArmName.CANARY: Counts(total=total, failed=failed, refused=refused)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "support-llm.jsonl"


def test_regions_that_ask_at_the_same_time_count_every_request_once(path: Path) -> None:
    write(path, *(a_record(number / 100) for number in range(1, 601)))
    for _ in range(5):
        source = RecordSource([path])
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _, asked=source: counted(asked), range(8)))
        assert answers == [canary(600)] * 8


def test_a_batch_holds_what_both_arms_did(path: Path) -> None:
    broken = a_record(2, status=503, ok=False, error="status", ttft_seconds=None)
    refused = a_record(3, status=400, ok=False, error="status", ttft_seconds=None)
    write(path, a_record(1, ttft_seconds=0.3), broken, refused, a_record(4, STABLE, itl_mean_seconds=None))
    batch = RecordSource([path]).batch(STABLE, CANARY, NOON, NOON + timedelta(minutes=1))
    assert batch.arms == (
        PodEvidence(arm=ArmName.STABLE, requests=1, ttft=(0.1,), e2e=(0.5,)),
        PodEvidence(arm=ArmName.CANARY, requests=3, errors=1, refused=1, ttft=(0.3,), itl=(0.02,), e2e=(0.5,)),
    )
    assert (batch.time, batch.source, batch.missing) == (NOON.timestamp() + 60, "users", {})


def test_an_arm_without_requests_is_missing_with_its_reason(path: Path) -> None:
    nobody = ArmKey(region="eu-west-1", role="", version="")
    write(path, a_record(1, STABLE), a_record(2, nobody, ok=False, status=0, error="connect"))
    batch = RecordSource([path]).batch(STABLE, CANARY, NOON, NOON + timedelta(minutes=1))
    assert [pod.arm for pod in batch.arms] == [ArmName.STABLE]
    assert batch.missing == {
        "requests": "no user request reached canary version 2 in eu-west-1",
        "unanswered": "1 user requests in eu-west-1 reached no engine and count for no arm",
    }


def test_batches_that_touch_add_up_to_the_whole(path: Path) -> None:
    rng = np.random.default_rng(3)
    ends = rng.uniform(0, 60, 500)
    # Written down out of order, as slow and fast requests of several users are.
    write(path, *(a_record(second, ok=bool(rng.random() < 0.9)) for second in ends))
    source = RecordSource([path])
    for _ in range(20):
        cuts = [0.0, *sorted(rng.uniform(0, 60, 5)), 60.0]
        parts = [
            source.batch(STABLE, CANARY, NOON + timedelta(seconds=low), NOON + timedelta(seconds=high)).arms[0]
            for low, high in pairwise(cuts)
            if ((ends > low) & (ends <= high)).any()
        ]
        assert sum(part.requests for part in parts) == 500
        whole = source.batch(STABLE, CANARY, NOON, NOON + timedelta(minutes=1)).arms[0]
        assert sum(part.errors for part in parts) == whole.errors
        assert sum((part.ttft for part in parts), ()) == whole.ttft


@pytest.mark.parametrize("changes", [{"ttft_seconds": -1.0}, {"started": float("nan")}, {"duration_seconds": -0.5}])
def test_a_time_that_cannot_be_is_no_record(path: Path, changes: dict[str, float]) -> None:
    line = a_record(1).model_copy(update=changes)
    path.write_text(json.dumps(line.model_dump()) + "\n")
    with pytest.raises(OutsideError, match="has a line that is no record"):
        RecordReader(path).read_new()


def test_a_line_that_is_half_written_waits_for_its_other_half(path: Path) -> None:
    line = a_record(1).model_dump_json() + "\n"
    reader = RecordReader(path)
    path.write_text(line + line[:20])
    assert len(reader.read_new()) == 1
    with path.open("a") as file:
        file.write(line[20:])
    assert reader.read_new() == [a_record(1)]


def test_a_file_that_is_gone_is_something_outside(path: Path) -> None:
    with pytest.raises(OutsideError, match=r"cannot read the load's records .*: No such file"):
        RecordReader(path).read_new()


def test_a_request_counts_in_the_window_in_which_it_ended(path: Path) -> None:
    write(path, a_record(0), a_record(0.1), a_record(60), a_record(60.1))
    assert counted(RecordSource([path])) == canary(2)


def test_users_of_several_loads_are_one_crowd(tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", a_record(1))
    write(tmp_path / "two.jsonl", a_record(2))
    assert counted(RecordSource([tmp_path / "one.jsonl", tmp_path / "two.jsonl"])) == canary(2)
