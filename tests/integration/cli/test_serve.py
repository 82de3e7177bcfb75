"""`tidegate serve` as a process next to a real MLflow server, which sends real webhooks.

Deliveries are real ones too; since there is no engine environment here, each opens its ledger and ends as failed.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest
from e2e.machine import TIDEGATE
from fakes.services.mlflow_server import TriggerGround
from fakes.services.sockets import free_address, running

from pipelines.triggers.app import WEBHOOK
from pipelines.triggers.webhooks import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign


@pytest.mark.slow(reason="serve twice, and a process for each delivery")
def test_an_alias_starts_a_delivery_once_and_one_that_nobody_heard_of_is_found(tmp_path: Path) -> None:
    ground = TriggerGround(tmp_path, "served-llm")
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
        ground.until(lambda: 'alias_info{alias="challenger",model="served-llm"' in ground.fetched("/metrics"))
    # The receiver is not there; what is left is what the registry says.
    ground.set_alias(3)
    with ground.serving(every="1s"):
        ground.until(lambda: "models:/served-llm/3@challenger: found in the registry" in ground.said())
        ground.until(lambda: any(each.version == "3" and each.ended for each in ground.summaries()))
        ground.until(lambda: re.search(r"/3@challenger: over: delivery \w+: failed", ground.said()))
        assert [each.version for each in ground.summaries()] == ["3", "2"]


@pytest.mark.slow(reason="a process that polls the registry")
def test_on_the_loopback_it_needs_no_secret_and_believes_no_webhook(delivery: Path, tmp_path: Path) -> None:
    address, moment = free_address(), str(int(time.time()))
    headers = {SIGNATURE_HEADER: sign("", "1", moment, b"{}"), TIMESTAMP_HEADER: moment, DELIVERY_ID_HEADER: "1"}
    command = [str(TIDEGATE), "serve", str(delivery), "--address", address, "--tracking-uri", "http://127.0.0.1:9"]
    log = tmp_path / "log"
    with running(command, ready=f"http://{address}/healthz", log=log):
        assert httpx.post(f"http://{address}{WEBHOOK}", content=b"{}", headers=headers).status_code == 401
        assert "TIDEGATE_WEBHOOK_SECRET is not set: webhooks are refused" in log.read_text()
