"""What only the real MLflow can show: what its UI and its API see, and several that open at once."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from fakes.clock import sleep_of
from fakes.delivery.records import slow
from fakes.services.mlflow_server import STORES
from mlflow import MlflowClient

from registry.deliveries import MlflowDeliveries
from registry.errors import DeliveryRuns, StopAsked
from registry.model import Event, GoldenSet, ModelVersion
from registry.versions import MlflowRegistry
from tidegate.testing import FakeClock, write_tiny_model


@pytest.fixture
def client(tracking_uri: str) -> MlflowClient:
    return MlflowClient(tracking_uri, registry_uri=tracking_uri)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def deliveries(tracking_uri: str, clock: FakeClock) -> MlflowDeliveries:
    return MlflowDeliveries(tracking_uri, clock, sleep=sleep_of(clock))


def version(name: str, number: str = "2") -> ModelVersion:
    return ModelVersion(name=name, version=number, digest="d" * 64, files={}, size_bytes=0)


def test_the_run_tells_how_the_delivery_went(
    deliveries: MlflowDeliveries, client: MlflowClient, clock: FakeClock, name: str, tmp_path: Path
) -> None:
    ledger = deliveries.open_delivery(version(name), version(name, "1"), spec_digest="abc")
    for event in slow():
        ledger.append(event)
    clock.elapsed += 12
    ledger.measure({"eu-west-1/latency.ttft@p95": 0.25}, at=clock.now())
    ledger.close("rolled-back", "latency: too slow")
    run = client.get_run(ledger.delivery)

    assert run.info.status == "FAILED"
    assert run.info.run_name == f"{name} 2 2026-01-01 00:00:00"
    assert run.data.params == {
        "model": name, "version": "2", "digest": "d" * 64, "champion": "1", "spec_digest": "abc",
    }  # fmt: skip
    assert run.data.tags["tidegate.state"] == run.data.tags["tidegate.outcome"] == "rolled-back"
    assert json.loads(run.data.tags["tidegate.carrier"])["host"] == socket.gethostname()
    assert run.data.tags["tidegate.region.eu-west-1"] == "undo@eu-west-1 done"
    assert run.data.tags["mlflow.note.content"].startswith(f"**{name} 2 was rolled back: latency: too slow**\n")
    [point] = client.get_metric_history(ledger.delivery, "eu-west-1/latency.ttft.p95")
    assert (point.value, point.step, point.timestamp) == (0.25, 12, round(clock.now().timestamp() * 1000))
    kept = client.download_artifacts(ledger.delivery, "events.jsonl", str(tmp_path))
    assert [Event.model_validate_json(line) for line in Path(kept).read_text().splitlines()] == slow()


def test_the_run_names_the_logged_model_and_the_golden_set(
    deliveries: MlflowDeliveries, client: MlflowClient, tracking_uri: str, name: str, tmp_path: Path
) -> None:
    made = MlflowRegistry(tracking_uri).register(name, write_tiny_model(tmp_path))
    golden = GoldenSet(name="golden.jsonl", digest="d" * 64)
    delivery = deliveries.open_delivery(made, None, spec_digest="abc", golden=golden).delivery
    inputs = client.get_run(delivery).inputs
    source = client.get_model_version(name, "1").source
    assert [f"models:/{each.model_id}" for each in inputs.model_inputs] == [source]
    [dataset] = [each.dataset for each in inputs.dataset_inputs]
    assert (dataset.name, dataset.digest) == ("golden.jsonl", "d" * 36)


def test_closing_that_died_in_the_middle_is_finished_with_its_own_outcome(
    deliveries: MlflowDeliveries, client: MlflowClient, clock: FakeClock, name: str
) -> None:
    ledger = deliveries.open_delivery(version(name), None, spec_digest="abc")
    client.set_tag(ledger.delivery, "tidegate.outcome", "delivered")
    client.set_tag(ledger.delivery, "tidegate.reason", "every gate passed")
    clock.elapsed += 61
    deliveries.open_delivery(version(name), None, spec_digest="abc")

    [_, first] = deliveries.deliveries(name)
    assert (first.outcome, first.reason) == ("delivered", "every gate passed")
    assert client.get_run(ledger.delivery).info.status == "FINISHED"


def test_a_dead_process_that_its_parent_has_not_buried_does_not_block(tracking_uri: str, name: str) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    deliveries = MlflowDeliveries(tracking_uri, pid=dead.pid)
    deliveries.open_delivery(version(name), None, spec_digest="s")
    assert not deliveries.is_alive(deliveries.deliveries(name)[0])
    dead.wait()


def test_of_several_that_open_at_once_exactly_one_does(tracking_uri: str, name: str) -> None:
    racers = 4
    start = Barrier(racers)

    def race(_: int) -> str:
        deliveries = MlflowDeliveries(tracking_uri)
        start.wait(60)
        try:
            return deliveries.open_delivery(version(name), None, spec_digest="s").delivery
        except DeliveryRuns:
            return "refused"

    with ThreadPoolExecutor(racers) as pool:
        said = list(pool.map(race, range(racers)))

    [left] = MlflowDeliveries(tracking_uri).deliveries(name)
    assert sorted(said) == sorted([left.id, *["refused"] * (racers - 1)])


@pytest.mark.parametrize("store", STORES)
def test_a_delivery_whose_run_is_deleted_is_to_end(request: pytest.FixtureRequest, name: str, store: str) -> None:
    clock, address = FakeClock(), request.getfixturevalue(STORES[store])
    ledger = MlflowDeliveries(address, clock, sleep=sleep_of(clock)).open_delivery(
        ModelVersion(name=name, version="2", digest="d" * 64, files={}, size_bytes=0), None, spec_digest="s"
    )
    ledger.beat()
    MlflowClient(address).delete_run(ledger.delivery)
    with pytest.raises(StopAsked, match=f"`mlflow runs restore --run-id {ledger.delivery}`"):
        ledger.beat()
