"""What commands say where MLflow has versions and nothing serves, besides `tests/golden/machine`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fakes.terminal import Tidegate

from pipelines.adapters.specs import read_delivery
from pipelines.model import Left
from registry.deliveries import MlflowDeliveries
from registry.model import Event
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.planning import plan_for


def test_a_delivery_that_was_opened_here_is_alive(tidegate: Tidegate, registered: Path, state: Path) -> None:
    uri = embedded_uri(state)
    plan = plan_for(read_delivery(registered), MlflowRegistry(uri))
    ledger = MlflowDeliveries(uri).open_delivery(plan.version, plan.champion, spec_digest="d")
    running = tidegate("status", "delivery.yaml")
    assert running.out.startswith(f"delivery {ledger.delivery[:8]} of version 2: at its start, process ")
    left = Left(region="eu-west-1", since=datetime(2026, 1, 1, 12, tzinfo=UTC), serves="nobody saw")
    for kind, message, data in (
        ("requested", "Ada (SSH key)", {}),
        ("allowed", "before wave 2: Grace (SSH key)", {}),
        ("left", "failed: gone", {"left": [left.model_dump(mode="json")]}),
    ):
        ledger.append(Event(at=datetime.now(UTC), step="delivery", kind=kind, message=message, data=data))
    told = tidegate("status", "delivery.yaml").out.splitlines()
    assert told[1:] == [
        "asked for by: Ada (SSH key)",
        "approvals: before wave 2: Grace (SSH key)",
        f"still open: {left}",
        "no fleet runs here",
    ]
    as_json = tidegate("status", "delivery.yaml", "--output", "json").json
    assert (as_json["requester"], as_json["approvals"]) == ("Ada (SSH key)", ["before wave 2: Grace (SSH key)"])
    assert as_json["left"] == [left.model_dump(mode="json")]
    # A tag, which is anybody's to write, is one line, and never one that a CI system obeys.
    ledger.close("rolled-back", "gate quality:\n::debug::x")
    over = tidegate("status", "delivery.yaml")
    assert over.out.startswith(f"delivery {ledger.delivery[:8]} of version 2: rolled-back: gate quality: ::debug::x\n")
    [line] = tidegate("status", "delivery.yaml", "--last", "20").out.splitlines()[1:]
    assert line.startswith(f"{ledger.delivery}  2 ")
    assert line.endswith("  rolled-back: gate quality: ::debug::x")
    assert tidegate("status", "delivery.yaml", "--last", "20", "-o", "name").out == f"{ledger.delivery}\n"
    [past] = tidegate("status", "delivery.yaml", "--last", "20", "-o", "json").json
    assert (past["id"], past["outcome"], past["alive"]) == (ledger.delivery, "rolled-back", False)


def test_what_is_alive_is_not_resumed_and_what_is_over_neither(
    tidegate: Tidegate, registered: Path, state: Path
) -> None:
    opened = tidegate("stage", "open", "delivery.yaml").out.strip()
    alive = tidegate("resume", opened)
    assert alive.code == 2
    assert f"delivery {opened} of" in alive.err
    MlflowDeliveries(embedded_uri(state)).join(opened).close("interrupted", "the test says so")
    over = f"delivery {opened} is over: interrupted: the test says so"
    for words in (f"resume {opened}", f"approve {opened} wave@2 --by ann", f"stage build --delivery {opened}"):
        said = tidegate(*words.split())
        assert (said.code, over in said.err) == (2, True)
    closed = tidegate("stage", "close", "--delivery", opened)
    assert (closed.code, closed.out) == (130, "interrupted: the test says so\n")
