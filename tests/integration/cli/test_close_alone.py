"""`tidegate stage close`, as a workflow's exit handler, when MLflow is away or its records cannot be believed.

Half of the users of a region are on the version on trial; they are back before anything can be read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from alike import long
from fakes.clusters.region import ClusterRegion
from fakes.clusters.served import Clusters
from fakes.terminal import Said, Tidegate
from mlflow import MlflowClient

from registry.chain import linked
from registry.conventions import MODEL
from registry.model import Event, EventKind
from registry.ports import embedded_uri
from registry.record import entry_tags, read_record
from rollouts.cluster.carrier import Carrier, read_lease
from rollouts.kube.resources import LEASES
from rollouts.manifests.conventions import lease
from tidegate import way_back

pytestmark = pytest.mark.slow(reason="an API server, MLflow that breaks, and a process for each command")

REGION = "eu-west-1"
KEY = "workflow-1"
AWAY = "http://127.0.0.1:9"
NONSENSE = {"gate": "x", "outcome": "zzz", "reason": ""}


@dataclass
class Scene:
    """A delivery with a key, whose canary has half of the region's users."""

    tidegate: Tidegate
    there: Clusters
    delivery: str
    state: Path

    @property
    def region(self) -> ClusterRegion:
        return self.there.region(REGION)

    def close(self, *options: str, key: str = KEY) -> Said:
        return self.tidegate("stage", "close", "delivery.yaml", "--key", key, *options)

    def holder(self) -> str:
        name = lease("support-llm")
        return self.there.servers.do(lambda: read_lease(self.region.cluster.get(LEASES, name)).token)

    def carry_on(self, carrier: Carrier) -> None:
        """As a process with that carrier does it: to half of the users."""
        fleet = self.region.open(carrier=carrier)
        self.there.servers.run(fleet.shift(50))
        self.there.servers.run(fleet.renew())


@pytest.fixture
def scene(
    tidegate: Tidegate, on_clusters: Callable[..., Clusters], state: Path, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    def with_a_canary(spec: dict[str, Any]) -> None:
        spec["gates"] |= {"errors": {"max_increase": "5pp"}}
        spec["traffic"] = {"requests_per_second": 50}
        spec["stages"] += [{"canary": {"weights": [50], "gates": ["errors"]}}]

    there = on_clusters(REGION, change=with_a_canary)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    opened = tidegate("stage", "open", "delivery.yaml", "--key", KEY, "--output", "json")
    assert opened.code == 0, opened.err
    for step in ("build", f"deploy@{REGION}"):
        said = tidegate("stage", step, "--delivery", opened.json["delivery"], "--key", KEY)
        assert said.code == 0, said.err
    scene = Scene(tidegate, there, opened.json["delivery"], state)
    scene.carry_on(Carrier(token=scene.holder(), who="a step", key=KEY, hands_on=True))
    assert there.splits() == [(50, 0)]
    return scene


@pytest.mark.parametrize("away", [long("refuses"), "mute", "full"])
def test_users_are_back_while_mlflow_is_away_and_the_records_follow(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, away: str, mute: str, full: str
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    said = scene.close("--tracking-uri", {"refuses": AWAY, "mute": mute, "full": full}[away])
    assert said.code == 4
    assert "eu-west-1: nothing is on trial any more; version 1 serves all users" in said.err
    assert (scene.there.splits(), scene.there.versions()) == ([(0, 0)], ["1"])
    again = scene.close("--output", "json")
    assert (again.code, again.json["ending"]) == (130, "interrupted"), again.err
    assert (scene.there.splits(), scene.there.versions()) == ([(0, 0)], ["1"])


def test_users_are_back_when_the_trust_file_cannot_be_read(scene: Scene) -> None:
    said = scene.close("--trust", "nowhere.yaml")
    assert (said.code, "nowhere.yaml: found no such file" in said.err) == (2, True), said.err
    assert (scene.there.splits(), scene.there.versions()) == ([(0, 0)], ["1"])


def forge_verdict(client: MlflowClient, delivery: str) -> None:
    """An event of the right shape, as anybody makes one without a key, of a gate with no such outcome."""
    tags = client.get_run(delivery).data.tags
    event = Event(at=datetime.now(UTC), step=f"smoke@{REGION}", kind=EventKind.VERDICT, message="", data=NONSENSE)
    entries = read_record(tags).entries
    entry = linked(
        event, entries, delivery=delivery, number=read_record(tags).next_number, writer="deadbeef", seal=None
    )
    for key, value in entry_tags(entry).items():
        client.set_tag(delivery, key, value)


def delete_run(client: MlflowClient, delivery: str) -> None:
    """One click in MLflow's pages."""
    client.delete_run(delivery)


def add_run_without_a_version(client: MlflowClient, delivery: str) -> None:
    run = client.get_run(delivery)
    client.create_run(run.info.experiment_id, tags={MODEL: run.data.tags[MODEL]})


def artifact_root(client: MlflowClient, delivery: str) -> Path:
    return Path(urlsplit(client.get_run(delivery).info.artifact_uri).path)


def make_the_spec_large(client: MlflowClient, delivery: str) -> None:
    with (artifact_root(client, delivery) / "spec" / "delivery.yaml").open("ab") as file:
        file.truncate(1 << 42)


RECORDS = [
    (forge_verdict, 5),
    (delete_run, 0),
    (add_run_without_a_version, 130),
    (make_the_spec_large, 5),
]


@pytest.mark.parametrize(("done", "code"), RECORDS)
def test_users_are_back_whatever_somebody_did_to_the_records(
    scene: Scene, done: Callable[[MlflowClient, str], None], code: int
) -> None:
    done(MlflowClient(embedded_uri(scene.state)), scene.delivery)
    said = scene.close()
    assert said.code == code, said.err
    assert (scene.there.splits(), scene.there.versions()) == ([(0, 0)], ["1"])


@pytest.mark.parametrize("successors_key", ["workflow-2", long("")])
def test_what_a_successor_has_on_trial_stays(scene: Scene, successors_key: str) -> None:
    over = frozenset({scene.holder()})
    scene.carry_on(Carrier(token="resumed", who="another workflow", over=over, key=successors_key))
    said = scene.close("--tracking-uri", AWAY)
    assert said.code == 4
    assert scene.there.splits() == [(50, 0)]
    assert scene.holder() == "resumed"


def test_a_delivery_that_is_through_stays(scene: Scene) -> None:
    scene.there.servers.run(scene.region.open(carrier=Carrier(token=scene.holder(), who="a step", key=KEY)).promote())
    assert scene.there.versions() == ["2"]
    assert scene.close("--tracking-uri", AWAY).code == 4
    assert (scene.there.versions(), scene.there.splits()) == (["2"], [(0, 0)])


def test_a_delivery_that_somebody_rolls_back_is_closed_by_its_own_close(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that comes later does nothing; the next `close` ends it."""
    monkeypatch.setattr(way_back, "ENDS_WITHIN_SECONDS", 1.0)
    told = scene.tidegate("rollback", "delivery.yaml")
    assert (told.code, "was told to end and has not; it may still move users" in told.err) == (4, True), told.err
    assert scene.there.splits() == [(0, 0)]
    step = scene.tidegate("stage", f"smoke@{REGION}", "--delivery", scene.delivery, "--key", KEY)
    assert step.code == 130
    assert step.err.splitlines()[-1].startswith(f"smoke@{REGION}: asked to stop by `tidegate rollback` of "), step.err
    closed = scene.close("--output", "json")
    assert (closed.code, closed.json["ending"]) == (130, "interrupted"), closed.err
    assert closed.json["reason"].startswith("asked to stop by `tidegate rollback` of ")
    again = scene.tidegate("rollback", "delivery.yaml")
    assert (again.code, again.out) == (0, f"{REGION}: version 1\n"), again.err
