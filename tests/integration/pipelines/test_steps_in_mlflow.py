"""A delivery step by step whose ledger is MLflow: whatever a step needs, a fresh process finds there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fakes.clock import sleep_of
from fakes.delivery.world import CHALLENGER, CHAMPION, SPEC, Steps, World, a_version
from fakes.services.embedded_mlflow import write_embedded_mlflow

from pipelines.events.artifacts import bring_spec, keep_spec
from pipelines.events.state import plan_of
from pipelines.events.writer import WriterLimits
from pipelines.model import Ending
from pipelines.run.resume import take_step
from registry.deliveries import MlflowDeliveries
from registry.errors import DeliveryLost, DeliveryRuns
from tidegate.core.errors import Refused
from tidegate.core.spec import load_spec

PATIENCE = timedelta(minutes=15)


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_embedded_mlflow(tmp_path_factory.mktemp("state"))


class InMlflow:
    """A delivery that many processes carry: each has a client of its own, and joins the ledger by its id."""

    def __init__(self, tracking_uri: str, world: World, disks: Path) -> None:
        world.limits = WriterLimits(call=300.0)  # MLflow takes the machine's time, and the clock is simulated
        self.world, self._uri = world, tracking_uri
        self.id = self.deliveries().open_delivery(
            a_version(CHALLENGER), a_version(CHAMPION), spec_digest="s", patience=PATIENCE
        ).delivery  # fmt: skip
        self.steps = Steps(world, disks, join=lambda: self.deliveries().join(self.id), kept=self.deliveries())

    def deliveries(self) -> MlflowDeliveries:
        return MlflowDeliveries(self._uri, self.world.clock, sleep=sleep_of(self.world.clock))


@pytest.mark.slow(reason="a process for each step")
async def test_every_process_finds_the_plan_the_spec_and_the_evidence(tracking_uri: str, tmp_path: Path) -> None:
    source = tmp_path / "specs" / "eu"
    source.mkdir(parents=True)
    world = World(tmp_path / "specs")
    (source / "delivery.yaml").write_text(SPEC.replace("golden.jsonl", "../golden.jsonl"))
    there = InMlflow(tracking_uri, world, tmp_path)
    ledger = there.deliveries().join(there.id)
    spec_file = keep_spec(ledger, source / "delivery.yaml", load_spec(source / "delivery.yaml", type(world.spec)))
    assert spec_file == "eu/delivery.yaml"
    path = bring_spec(there.deliveries(), there.id, spec_file, tmp_path / "elsewhere", (spec_file, "golden.jsonl"))
    assert path.read_text() == (source / "delivery.yaml").read_text()
    assert (path.parent / "../golden.jsonl").read_text() == (tmp_path / "specs" / "golden.jsonl").read_text()
    assert plan_of(ledger.recorded()).version == world.plan.version
    await there.steps.until("canary@eu-west-1/50")
    [kept] = there.deliveries().fetch(there.id, "evidence", tmp_path / "again")[:1]
    assert kept.parent == tmp_path / "again" / "evidence"
    assert kept.read_text().count('"kind":"terms"') == 1
    assert '"step":"canary@eu-west-1/50"' in kept.read_text()
    assert (await there.steps.close()).ending is Ending.INTERRUPTED


@pytest.mark.slow(reason="a process for each step")
async def test_no_matter_who_carries_it_on_ends_the_word_of_those_before(tracking_uri: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    there = InMlflow(tracking_uri, world, tmp_path)
    await there.steps.until("deploy@eu-west-1")
    lost = there.steps.process()
    with pytest.raises(DeliveryRuns):
        there.deliveries().take_over(there.id)
    world.clock.elapsed += 61
    there.deliveries().take_over(there.id)
    with pytest.raises(DeliveryLost, match="carried on by another process"):
        await take_step(lost, "smoke@eu-west-1")
    assert (await there.steps.resume()).ending is Ending.DELIVERED
    with pytest.raises(Refused, match="is over: delivered"):
        there.deliveries().take_over(there.id)
