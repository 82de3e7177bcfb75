"""One version that is promoted by webhook, by hand and by CI at the same moment: real commands, real MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from fakes.clusters.served import Clusters, clusters, delivery_to, mark_images, write_golden_set
from fakes.services.mlflow_server import PATIENCE_SECONDS, TriggerGround
from fakes.workflow.engine import engines

from registry.adapters.mlflow_models import MlflowRegistry

pytestmark = pytest.mark.timeout(900)

MODEL = "promoted-llm"


class Promoted(TriggerGround):
    """Two versions in MLflow, and two regions that wait for the second."""

    clusters: Clusters

    def waits(self) -> bool:
        """Whether a delivery has asked for the approval, before it changes anything."""
        return any(event.kind == "waiting" for each in self.summaries() for event in self.deliveries.events(each.id))

    def tells(self, ending: str) -> Callable[[], bool]:
        """Whether `serve` has told that of the one delivery."""
        return lambda: f"/2@challenger: {ending.format(self.summaries()[0].id)}" in self.said()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Promoted]:
    made = Promoted(tmp_path, MODEL)
    made.prepare(versions=2)
    mark_images(MlflowRegistry(made.uri), MODEL)
    write_golden_set(tmp_path)
    with engines(made.version_folder(1) / "model") as served:
        spec = delivery_to([["eu-west-1"], ["us-east-1"]], name=MODEL, engine=served.url)
        # It lasts until somebody says yes: all three have had their say by then.
        spec["approvals"] = [{"before": "wave", "wave": 1, "by": "names"}]
        (tmp_path / "delivery.yaml").write_text(yaml.safe_dump(spec))
        with clusters(spec, tmp_path) as made.clusters:
            made.environment["KUBECONFIG"] = str(made.clusters.servers.kubeconfig)
            try:
                yield made
            finally:
                made.end()


@pytest.mark.long
def test_three_who_promote_one_version_at_once_start_one_delivery(ground: Promoted) -> None:
    with ground.serving(*ground.register, every="1s"):
        ground.until(lambda: "test event was answered 200" in ground.said())
        by_hand = ground.begin("deliver", "delivery.yaml", "--version", "2")
        by_ci = ground.begin("deliver", "delivery.yaml", "--version", "2", "--ci", "--state", "runner")
        ground.set_alias(2)
        ground.until(ground.waits)
        (one,) = ground.summaries()
        ground.until(ground.tells("started: delivery {} runs"))
        # Anyone who came too late was told so; the one that opened the ledger still waits for the approval.
        late = [each.wait(PATIENCE_SECONDS) for each in (by_hand, by_ci) if each.pid != one.pid]
        assert set(late) == {2}
        assert ground.begin("approve", one.id, "wave@1", "--by", "ann").wait(PATIENCE_SECONDS) == 0
        ground.until(ground.tells("over: delivery {}: delivered"))
    assert [(each.id, each.outcome) for each in ground.summaries()] == [(one.id, "delivered")]
    assert MlflowRegistry(ground.uri).resolve(MODEL, "champion").version == "2"
    assert ground.clusters.versions() == ["2", "2"]
    assert [each.wait(PATIENCE_SECONDS) for each in (by_hand, by_ci) if each.pid == one.pid] in ([], [0])
