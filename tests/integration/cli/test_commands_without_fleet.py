"""What commands say on a machine where MLflow has versions and nothing serves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.terminal import Tidegate

from pipelines.adapters.specs import read_delivery
from pipelines.events.writer import EventEntry, Spool
from pipelines.model import Left
from registry.deliveries import MlflowDeliveries
from registry.model import Event
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.planning import plan_for


def test_a_plan_is_what_would_happen_to_the_versions_behind_the_aliases(
    tidegate: Tidegate, registered: Path, name: str
) -> None:
    said = tidegate("plan", "delivery.yaml")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == f"models:/{name}/2 -> eu-west-1, us-east-1; champion is version 1"
    assert lines[2].startswith("build")
    assert [line for line in lines if line.endswith(" when every gate answers as soon as it can")]


def test_a_plan_as_json_has_every_step_under_its_id(tidegate: Tidegate, registered: Path) -> None:
    plan = tidegate("plan", "delivery.yaml", "--output", "json").json
    ids = [step["id"] for step in plan["steps"]]
    assert (ids[0], ids[-1]) == ("build", "finalize")
    assert "canary@us-east-1/50" in ids
    assert plan["version"]["version"] == "2"
    assert plan["expected_seconds"] > 0


def test_a_plan_as_a_comment_is_told_whether_there_is_one_or_not(
    tidegate: Tidegate, registered: Path, name: str
) -> None:
    said = tidegate("plan", "delivery.yaml", "--output", "markdown")
    assert (said.code, said.err) == (0, "")
    mark, head = said.out.splitlines()[:2]
    assert (mark, head) == ("<!-- tidegate plan delivery.yaml -->", f"### models:/{name}/2 → eu-west-1, us-east-1")
    registered.write_text(registered.read_text().replace("within: 10m", "within: 20s"))
    said = tidegate("plan", "delivery.yaml", "--output", "markdown")
    assert said.code == 2
    assert said.out.splitlines()[:2] == [mark, "### No plan for delivery.yaml"]
    assert "but the stage ends after" in said.out
    assert "but the stage ends after" in said.err


def test_a_plan_offline_asks_no_registry(tidegate: Tidegate, registered: Path, tmp_path: Path) -> None:
    online = tidegate("plan", "delivery.yaml", "-o", "json").json
    said = tidegate("plan", "delivery.yaml", "--offline", "-o", "json", "--tracking-uri", "http://127.0.0.1:1")
    assert (said.code, said.err) == (0, "")
    assert said.json["steps"] == online["steps"]
    assert "version" not in said.json
    text = tidegate("plan", "delivery.yaml", "--offline", "--state", str(tmp_path / "fresh"))
    assert text.out.splitlines()[0].endswith("; champion was not looked up (--offline)")
    assert not (tmp_path / "fresh").exists()


def test_a_dry_run_says_that_another_delivery_runs(tidegate: Tidegate, registered: Path, state: Path) -> None:
    uri = embedded_uri(state)
    plan = plan_for(read_delivery(registered), MlflowRegistry(uri))
    ledger = MlflowDeliveries(uri).open_delivery(plan.version, plan.champion, spec_digest="d")
    dry = tidegate("deliver", "delivery.yaml", "--dry-run")
    said = tidegate("deliver", "delivery.yaml")
    ledger.close("rolled-back", "gate quality: worse")
    assert (dry.code, said.code) == (2, 2)
    assert f"`deliver` would not begin: {said.err.split(': ', 1)[1]}" in dry.out
    assert tidegate("status", "delivery.yaml", "--last", "20", "-o", "name").out.count("\n") == 1


def test_a_dry_run_of_what_may_begin_is_its_plan(tidegate: Tidegate, registered: Path, name: str) -> None:
    before = tidegate("status", "delivery.yaml", "--last", "20").out + tidegate("model", "list", name).out
    said = tidegate("deliver", "delivery.yaml", "--dry-run", "-o", "json")
    assert (said.code, said.json["refusals"]) == (0, [])
    assert said.json["steps"] == tidegate("plan", "delivery.yaml", "-o", "json").json["steps"]
    assert tidegate("status", "delivery.yaml", "--last", "20").out + tidegate("model", "list", name).out == before


def test_nothing_was_delivered_yet(tidegate: Tidegate, delivery: Path, state: Path) -> None:
    said = tidegate("status", "delivery.yaml")
    assert (said.code, said.out) == (4, "no delivery yet\nno fleet runs here\n")
    history = tidegate("status", "delivery.yaml", "--last", "20")
    assert (history.code, history.out) == (0, "no delivery yet\n")
    as_json = tidegate("status", "delivery.yaml", "--output", "json").json
    assert as_json == {
        "delivery": None, "alive": False, "process": None, "regions": [], "silent": {}, "carried": {},
        "requester": "", "approvals": [], "steps": {}, "left": [], "unwritten": 0, "unreadable": None,
        "in_production": None, "mlflow": embedded_uri(state),
    }  # fmt: skip


def test_what_waits_for_mlflow_is_counted_while_its_process_lives(
    tidegate: Tidegate, delivery: Path, state: Path
) -> None:
    spool = Spool(state / "unwritten", "0f3c")
    for number in range(3):
        at = datetime(2026, 1, 1, 12, number, tzinfo=UTC)
        spool.add(EventEntry(event=Event(at=at, step="delivery", kind="evidence", message="", data={})))
    said = tidegate("status", "delivery.yaml")
    assert "3 events are not yet written: MLflow has not taken them\n" in said.out
    assert tidegate("status", "delivery.yaml", "--output", "json").json["unwritten"] == 3
    # Other tests have the same state folder.
    spool.clear()
    spool.end()


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


def test_there_is_no_report_before_the_first_delivery(tidegate: Tidegate, delivery: Path, name: str) -> None:
    said = tidegate("report", "delivery.yaml")
    assert (said.code, said.out) == (2, "")
    assert said.err == f"tidegate: {name} has not been delivered yet; run `tidegate deliver`\n"
    assert not (delivery.parent / "report.html").exists()


def test_without_a_fleet_there_is_nothing_to_roll_back(tidegate: Tidegate, delivery: Path) -> None:
    said = tidegate("rollback", "delivery.yaml")
    line = "no fleet runs here, so there is nothing to roll back; --state names the folder of another fleet"
    assert (said.code, said.out, said.err) == (4, "", f"tidegate: {line}\n")


def test_stopping_a_fleet_that_is_not_there_is_no_error(tidegate: Tidegate) -> None:
    said = tidegate("fleet", "down")
    assert (said.code, said.out) == (0, "no fleet runs here\n")


READERS = ("status", "plan", "deliver --dry-run", "status --last 20", "model list")


@pytest.mark.parametrize("command", READERS)
def test_a_command_that_only_reads_makes_nothing(
    tidegate: Tidegate, delivery: Path, name: str, tmp_path: Path, command: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    said = tidegate(*command.split(), *([name] if command == "model list" else []), "--state", "there-is-none")
    # Neither is there a fleet to show, or a model to plan for.
    assert (said.code, "Traceback" in said.err) == ({"status --last 20": 0, "status": 4}.get(command, 2), False)
    assert sorted(tmp_path.rglob("*")) == before
