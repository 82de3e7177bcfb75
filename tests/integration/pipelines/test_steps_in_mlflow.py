"""A delivery step by step whose ledger is MLflow: whatever a step needs, a fresh process finds there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.clock import sleep_of
from fakes.delivery.world import CHALLENGER, CHAMPION, SPEC, Steps, World, a_spec, a_version
from fakes.services.embedded_mlflow import write_embedded_mlflow

from pipelines.events.artifacts import bring_spec, keep_spec
from pipelines.events.history import plan_of
from pipelines.model import Ending
from pipelines.run.resume import take_step
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.errors import DeliveryLost, DeliveryRuns, UnknownDelivery
from registry.model import Event
from tidegate.core.errors import Refused
from tidegate.core.spec import load_spec

PATIENCE = timedelta(minutes=15)
TOGETHER = "regions: {waves: [[eu-west-1, us-east-1]], bake: 10s}"
EVERYWHERE = {"eu-west-1": CHALLENGER, "us-east-1": CHALLENGER}


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_embedded_mlflow(tmp_path_factory.mktemp("state"))


class InMlflow:
    """A delivery that many processes carry: each has a client of its own, and joins the ledger by its id."""

    def __init__(self, tracking_uri: str, world: World, disks: Path, *, key: str | None = None) -> None:
        self.world, self._uri = world, tracking_uri
        self.id = self.deliveries().open_delivery(
            a_version(CHALLENGER), a_version(CHAMPION), spec_digest="s", patience=PATIENCE, key=key
        ).delivery  # fmt: skip
        self.steps = Steps(
            world, disks, join=lambda: self.deliveries().join(self.id), kept=self.deliveries()
        )  # fmt: skip

    def deliveries(self) -> MlflowDeliveries:
        return MlflowDeliveries(self._uri, self.world.clock, sleep=sleep_of(self.world.clock))


@pytest.mark.long
async def test_regions_go_side_by_side_in_one_ledger_and_nothing_is_written_over(
    tracking_uri: str, tmp_path: Path
) -> None:
    world = World(tmp_path, a_spec(regions=TOGETHER))
    there = InMlflow(tracking_uri, world, tmp_path)
    steps = there.steps
    await steps.take("build")
    lanes = [[each for each in steps.ids if f"@{region}" in each] for region in EVERYWHERE]

    async def walk(lane: list[str]) -> None:
        for step in lane:
            assert (await take_step(steps.process(), step)).done

    await asyncio.gather(*(walk(lane) for lane in lanes))
    assert (await steps.take("bake@1")).done
    assert (await steps.take("finalize")).done
    result = await steps.close()
    assert (result.ending, result.delivery) == (Ending.DELIVERED, there.id)
    assert world.stable_versions() == EVERYWHERE
    summary = there.deliveries().summary(there.id)
    assert (summary.outcome, summary.patience_seconds) == ("delivered", 900)
    written = [event for event in there.deliveries().events(there.id) if event.kind in ("started", "done", "closed")]
    heard = [event for event in world.recorder.events if event.kind in ("started", "done", "closed")]
    assert sorted(written, key=str) == sorted(heard, key=str)
    assert await steps.close() == result


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


@pytest.mark.long
async def test_between_two_steps_it_lives_for_its_patience_and_no_longer(tracking_uri: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    there = InMlflow(tracking_uri, world, tmp_path, key="workflow-1")
    await there.steps.until("smoke@eu-west-1")
    world.clock.elapsed += PATIENCE.total_seconds() - 1
    with pytest.raises(DeliveryRuns):
        InMlflow(tracking_uri, world, tmp_path)
    again = there.deliveries().open_delivery(a_version(CHALLENGER), None, spec_digest="s", key="workflow-1")
    assert again.delivery == there.id
    world.clock.elapsed += 2
    other = there.deliveries().open_delivery(a_version(CHALLENGER), None, spec_digest="s")
    assert there.deliveries().summary(there.id).outcome == "interrupted"
    with pytest.raises(DeliveryLost):
        await there.steps.take("offline@eu-west-1")
    other.close("interrupted", "the test is over")


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


@pytest.mark.long
async def test_an_answer_from_outside_is_no_sign_of_life(tracking_uri: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    there = InMlflow(tracking_uri, world, tmp_path)
    before = there.deliveries().summary(there.id).heartbeat
    world.clock.elapsed += 30
    outside = there.deliveries().join(there.id, carries=False)
    outside.append(Event(at=world.now(), step="freeze", kind="approved", message="ann", data={"by": "ann"}))
    assert there.deliveries().summary(there.id).heartbeat == before
    assert there.deliveries().events(there.id)[-1].kind == "approved"
    assert (await there.steps.close()).ending is Ending.INTERRUPTED


def test_a_delivery_that_nobody_opened_is_told(tracking_uri: str) -> None:
    with pytest.raises(UnknownDelivery, match="there is no delivery abc"):
        MlflowDeliveries(tracking_uri).join("abc")
