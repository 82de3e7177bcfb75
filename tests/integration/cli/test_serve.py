"""`tidegate serve` as a process next to a real MLflow server, which sends real webhooks and may be gone for a while.

Deliveries are real ones too; since there is no engine environment here, each opens its ledger and ends as failed.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.services.mlflow_server import MODEL, TIDEGATE, TriggerGround, mlflow_server
from mlflow import MlflowClient

from pipelines.adapters.mlflow_triggers import MlflowTriggers
from pipelines.triggers.webhooks import DELIVER_TAG
from tidegate.cli.commands.init import write_example
from tidegate.core.errors import OutsideError

pytestmark = pytest.mark.timeout(900)


def test_an_alias_starts_a_delivery_once_and_a_tag_that_nobody_heard_of_is_found(tmp_path: Path) -> None:
    ground = TriggerGround(tmp_path)
    with ground.mlflow():
        ground.prepare(versions=3)
        with ground.serving(*ground.register, every="1h"):
            ground.until(lambda: "test event was answered 200" in ground.said())
            assert f"MLflow is asked to send a test event to {ground.register[-1]}" in ground.said()
            ground.set_alias(2)
            # Nobody looks for an hour: what starts it is the webhook.
            ground.until(lambda: "/2@challenger: started" in ground.said())
            ground.until(ground.summaries)
            ground.until(lambda: all(each.ended for each in ground.summaries()))
            ground.set_alias(2)
            ground.until(lambda: 'outcome="duplicate"} 1.0' in ground.fetched("/metrics"))
            assert_what_is_not_mlflows_is_refused(ground)
            ground.until(lambda: f'alias_info{{alias="challenger",model="{MODEL}"' in ground.fetched("/metrics"))
        MlflowClient(ground.uri).set_model_version_tag(MODEL, "3", DELIVER_TAG, "challenger")
    # MLflow's own tries ended with it; the receiver was not there. What is left is what the registry says.
    with ground.serving(every="1s", path="/healthz"), ground.mlflow():
        ground.until(lambda: "models:/support-llm/3@challenger: found in the registry" in ground.said())
        ground.until(lambda: any(each.version == "3" and each.ended for each in ground.summaries()))
        ground.until(lambda: re.search(r"/3@challenger: over: delivery \w+: failed", ground.said()))
        assert [each.version for each in ground.summaries()] == ["3", "2"]


def test_an_address_that_mlflow_refuses_is_told_with_the_settings_that_allow_it(tmp_path: Path) -> None:
    with mlflow_server(tmp_path / "mlflow") as uri, pytest.raises(OutsideError) as error:
        MlflowTriggers(uri).announce("tidegate-support-llm", "http://127.0.0.1:9/", "a secret of some length")
    assert error.value.message.startswith("MLflow refuses http://127.0.0.1:9/: Invalid webhook URL scheme: 'http'")
    assert "MLFLOW_WEBHOOK_ALLOWED_SCHEMES=https,http" in str(error.value)


def assert_what_is_not_mlflows_is_refused(ground: TriggerGround) -> None:
    """Each is of version 3, which nobody has requested."""
    assert ground.posted(3, id="forged", secret="some other secret") == 401
    assert ground.posted(3, id="stale", age=301) == 401
    assert ground.posted(3, id="large", more="x" * 65536) == 413
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda number: ground.posted(2, id=f"again-{number}"), range(40)))
    assert set(at_once) == {200}
    assert ground.posted(2, id="again-0") == 409
    assert [entry["request"]["version"] for entry in json.loads(ground.fetched("/requests"))] == ["2"]


def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    write_example(tmp_path)
    environment = TriggerGround(tmp_path).environment | {"TIDEGATE_WEBHOOK_SECRET": "short"}
    command = [str(TIDEGATE), "serve", "delivery.yaml"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "TIDEGATE_WEBHOOK_SECRET has 5 characters; expected at least 16" in said.stderr
