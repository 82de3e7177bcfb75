"""Simulated controllers behind a real socket, in real time."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from fakes.argo.scene import NAME, canary, http_route, rollout, service
from fakes.argo.simulation import Simulation
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import serving
from fakes.kube.simulated_time import RealTime

from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES

REGION = "eu-west-1"


def test_a_rollout_becomes_healthy_and_pauses_at_its_step(tmp_path: Path) -> None:
    with serving({REGION: Api(FakeCluster(time=RealTime()))}, tmp_path) as servers:
        cluster = servers.api(REGION).cluster
        simulation = servers.do(lambda: Simulation(cluster, start_seconds=0.1))
        with httpx.Client(base_url=servers.urls[REGION]) as client:
            for resource, body in (
                *((SERVICES, service(f"{NAME}-{arm}")) for arm in ("stable", "canary")),
                (HTTP_ROUTES, http_route()),
                (ROLLOUTS, rollout(canary())),
            ):
                assert client.post(resource.path("default"), json=body).status_code == 201
            wait_for(client, "Healthy")
            labels = {"app": NAME, "tidegate.dev/version": "2"}
            patch = {"spec": {"template": {"metadata": {"labels": labels}}}}
            headers = {"content-type": "application/merge-patch+json"}
            client.patch(ROLLOUTS.path("default", NAME), json=patch, headers=headers)
            wait_for(client, "Paused")
        assert servers.do(simulation.reconcile_errors.total) == 0
        servers.do(simulation.close)


def wait_for(client: httpx.Client, phase: str) -> None:
    until = time.monotonic() + 20
    while client.get(ROLLOUTS.path("default", NAME)).json().get("status", {}).get("phase") != phase:
        if time.monotonic() > until:
            pytest.fail(f"no {phase} in 20 s")
        time.sleep(0.02)
