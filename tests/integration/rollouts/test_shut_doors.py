"""What any user of the machine, or any web page, may send to a local fleet's ports of the loopback ends nothing."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rollouts.adapters.envoy import Envoy
from rollouts.adapters.host_client import FleetHost
from rollouts.adapters.http import Http
from rollouts.adapters.sockets import free_port
from rollouts.base import RegionSplit
from rollouts.local.xds import STATS_PATH


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[Envoy]:
    envoy = Envoy(tmp_path, entry_port=free_port())
    await envoy.start()
    yield envoy
    await envoy.stop()


async def test_no_port_of_a_proxy_leads_to_its_admin(envoy: Envoy) -> None:
    async with httpx.AsyncClient(trust_env=False) as anybody:
        for method in ("POST", "GET"):
            for path in ("/quitquitquit", "/config_dump", "/logging?level=trace", "/healthcheck/fail", "/"):
                assert (await anybody.request(method, f"{envoy.stats}{path}")).status_code == 404, (method, path)
                # Users' door, behind which there is no engine.
                assert (await anybody.request(method, f"{envoy.entry}{path}")).status_code == 503, (method, path)
        assert (await anybody.post(f"{envoy.stats}{STATS_PATH}")).status_code == 404
    assert envoy.alive
    await envoy.swap(RegionSplit(), {})


async def test_the_admin_is_ours_alone_and_counters_are_everybodys(envoy: Envoy) -> None:
    assert stat.S_IMODE(envoy.admin.stat().st_mode) == 0o600
    async with httpx.AsyncClient(trust_env=False) as anybody:
        assert "envoy_cluster_manager_cds_update_success" in (await anybody.get(f"{envoy.stats}{STATS_PATH}")).text


async def test_a_proxy_far_down_has_its_admin_elsewhere(tmp_path: Path) -> None:
    envoy = Envoy(tmp_path / ("far" * 40), entry_port=free_port())
    await envoy.start()
    assert not envoy.admin.is_relative_to(tmp_path)
    assert stat.S_IMODE(envoy.admin.parent.stat().st_mode) == 0o700
    await envoy.stop()
    assert not envoy.admin.parent.exists()


async def test_nobody_ends_prometheus_or_has_it_read_again(host: FleetHost) -> None:
    async with Http() as http:
        for path in ("/-/quit", "/-/reload"):
            assert (await http.post(f"{host.prometheus_url}{path}")).status_code == 403, path
        assert (await http.get(f"{host.prometheus_url}/-/ready")).is_success
