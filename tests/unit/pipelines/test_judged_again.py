"""The evidence that a delivery recorded is judged again, and what differs is named."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.delivery.world import Attached, Steps, World

from pipelines.authority.audit import judge_again

TRIAL = "canary@eu-west-1"
PLACE = f"evidence/{TRIAL}.jsonl"


def judged(world: World) -> tuple[list[str], list[str]]:
    same, differing = judge_again(world.ledger.delivery, world.ledger.recorded(), Attached(world.ledger.files))
    return list(same), [str(each) for each in differing]


async def test_what_differs_from_the_record_is_named(tmp_path: Path) -> None:
    """Of a canary that two processes watched, at two weights; a file that no verdict names is not read."""
    world = World(tmp_path)
    await Steps(world, tmp_path).until(f"{TRIAL}/50")
    world.ledger.files["evidence/another.jsonl"] = b"{}"
    same, differing = judged(world)
    assert TRIAL in same and "another" not in same
    assert differing == []

    lines = world.ledger.files[PLACE].decode().splitlines()
    said = json.loads(lines[-1])
    said["verdicts"][0]["outcome"] = 4
    world.ledger.files[PLACE] = "\n".join([*lines[:-1], json.dumps(said), ""]).encode()
    same, (found,) = judged(world)
    assert TRIAL not in same
    place = f"changed: {TRIAL}: judged again, line {len(lines)}: {TRIAL}/50: gate latency: outcome"
    assert found == f"{place}: recorded fail, now pass"

    for text, problem in (
        ("", "found no terms; expected the terms as the first line"),
        ('{"time": 1}\n', "found an object without the key kind; expected a line that tidegate wrote"),
    ):
        world.ledger.files[PLACE] = text.encode()
        assert judged(world)[1] == [f"changed: {TRIAL}: cannot be judged again: {TRIAL}.jsonl:1: {problem}"]

    del world.ledger.files[PLACE]
    same, differing = judged(world)
    assert TRIAL not in same and differing == []
