"""The host's life: one per folder, found by others, gone without leaving anything behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from fakes.engines.local_fleet import REGION, Users, delivery, stand_in
from fakes.waiting import PATIENCE_SECONDS

from rollouts.adapters import host_client
from rollouts.adapters.host_client import FleetHost
from rollouts.adapters.http import Http
from rollouts.errors import HostGone, NotPossible
from rollouts.model import RegionPhase
from tidegate.core.errors import ExitCode, OutsideError, Refused

pytestmark = pytest.mark.slow(reason="a fleet host, Envoy and Prometheus, which scrapes every second")

OWNER = """
import asyncio, sys
from pathlib import Path
from rollouts.adapters import host_client

async def main():
    host = await host_client.start(Path(sys.argv[1]), {"eu-west-1": None}, owned=True)
    print(host.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


UNATTENDED_SECONDS = 2.0

CARRIER = f"""
import asyncio, sys
from pathlib import Path
from pipelines.delivery_lock import delivery_lock
from rollouts.cluster.carrier import Carrier
from rollouts.adapters import host_client
from pipelines.adapters.this_machine import fleet_heartbeat

async def main():
    state = Path(sys.argv[1])
    host = await host_client.attach(state)
    with delivery_lock(state / "delivery.lock"):
        async with fleet_heartbeat(host, Carrier(token="", who="a test", unattended_seconds={UNATTENDED_SECONDS})):
            while await host.fleet("eu-west-1").carried() is None:
                await asyncio.sleep(0.05)
            print("carries", flush=True)
            await asyncio.sleep(3600)

asyncio.run(main())
"""


def family(pid: int) -> list[psutil.Process]:
    """The host and everything below it."""
    host = psutil.Process(pid)
    return [host, *host.children(recursive=True)]


async def gone(processes: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(running(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_no_child_outlives_a_killed_host(host: FleetHost, state: Path) -> None:
    await host.fleet(REGION).deploy(stand_in("6"))
    processes = family(host.pid)
    os.kill(host.pid, signal.SIGKILL)
    # As a delivery hears it that goes on meanwhile.
    with pytest.raises(HostGone) as lost:
        await host.fleet(REGION).observe()
    assert lost.value.exit_code is ExitCode.OUTSIDE
    assert await gone(processes)
    assert await host_client.attach(state) is None


async def test_an_owned_host_ends_with_its_owner_even_when_that_is_killed(state: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-P", "-c", OWNER, str(state)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    processes = family(int(owner.stdout.readline()))
    owner.stdout.close()
    owner.kill()
    owner.wait()
    assert await gone(processes)


async def test_others_find_the_one_host_of_a_folder_and_its_end_leaves_nothing(host: FleetHost, state: Path) -> None:
    await host.fleet(REGION).deploy(stand_in("6"))
    other = await host_client.attach(state)
    assert other is not None
    assert other.regions() == host.regions()
    assert (await other.fleet(REGION).observe()).phase is RegionPhase.STEADY
    with pytest.raises(NotPossible, match="no region mars"):
        await other.fleet("mars").observe()
    await other.close()
    with pytest.raises(Refused, match="runs already"):
        await host_client.start(state, {REGION: None}, owned=True)
    assert (await host.fleet(REGION).observe()).phase is RegionPhase.STEADY
    processes = family(host.pid)
    assert len(processes) == 7, "the host; Prometheus, Envoy and one engine, each with its guard"
    await host.stop()
    assert await gone(processes)
    await host.stop()


async def test_a_port_in_use_is_said_in_one_line_and_nothing_is_left(state: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=f"^port {port}, wanted as the entry of a region, is in use"):
            await host_client.start(state, {"us-east-1": None, REGION: port}, owned=True)
    assert await host_client.attach(state) is None
    begun = set(psutil.Process().children(recursive=True)) - before
    assert not [process for process in begun if running(process)]


async def test_a_machine_without_prometheus_is_told_what_to_install(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(OutsideError, match="apt-get install prometheus"):
        await host_client.start(state, {REGION: None}, owned=True)


async def test_two_regions_serve_side_by_side_also_where_a_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    state = tmp_path / ("very-" * 20 + "long") / "state"
    host = await host_client.start(state, {"eu-west-1": None, "us-east-1": None}, owned=True)
    first, second = (host.fleet(region) for region in host.regions())
    states = await asyncio.gather(first.deploy(stand_in("6")), second.deploy(stand_in("6")))
    assert len({seen.entry for seen in states}) == 2
    assert {seen.phase for seen in states} == {RegionPhase.STEADY}
    await host.stop()


async def test_a_canary_that_no_delivery_watches_is_taken_back(state: Path) -> None:
    host = await host_client.start(state, {REGION: None}, owned=True)
    fleet = host.fleet(REGION)
    entry = (await fleet.deploy(stand_in("6"))).entry
    with delivery(state):
        await fleet.deploy(stand_in("7"))
        await fleet.shift(50)
        await asyncio.sleep(1.5)
        assert (await fleet.observe()).weight == 50
    died_at = time.monotonic()
    async with Users(entry) as users:
        while (await fleet.observe()).phase is not RegionPhase.STEADY:
            await asyncio.sleep(0.05)
    assert users.failed == []
    canary = [request.started for request in users.requests if request.role == "canary"]
    assert max(canary, default=died_at) - died_at < 1.5
    assert (await fleet.observe()).taken_away.endswith(": no delivery runs here any more")
    await host.stop()


async def test_a_canary_whose_delivery_hangs_is_taken_back_and_it_says_why(state: Path) -> None:
    """The process lives and holds its lock; only its silence tells."""
    host = await host_client.start(state, {REGION: None}, owned=True)
    fleet = host.fleet(REGION)
    entry = (await fleet.deploy(stand_in("6"))).entry
    carries = subprocess.Popen([sys.executable, "-P", "-c", CARRIER, str(state)], stdout=subprocess.PIPE)
    try:
        assert carries.stdout is not None and carries.stdout.readline() == b"carries\n"
        await fleet.deploy(stand_in("7"))
        await fleet.shift(50)
        await asyncio.sleep(UNATTENDED_SECONDS + 1.5)
        assert (await fleet.observe()).weight == 50, "the one who is heard of keeps his canary"
        carries.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        async with Users(entry) as users:
            while (await fleet.observe()).phase is not RegionPhase.STEADY:
                await asyncio.sleep(0.05)
    finally:
        carries.kill()
        carries.communicate()
    assert users.failed == []
    canary = [request.started for request in users.requests if request.role == "canary"]
    assert canary and max(canary) - stopped_at < UNATTENDED_SECONDS + 2
    taken_away = (await fleet.observe()).taken_away
    assert taken_away.startswith("version 7 was rolled back here at ")
    assert taken_away.endswith(": nothing was heard of a test for 2s")
    with delivery(state):
        assert (await fleet.deploy(stand_in("8"))).taken_away == ""
    await host.stop()


async def test_a_detached_host_is_stopped_by_the_one_who_attaches(state: Path) -> None:
    started = await host_client.start(state, {REGION: None}, owned=False)
    processes = family(started.pid)
    await started.close()
    other = await host_client.attach(state)
    assert other is not None
    await other.stop()
    assert await gone(processes)
    await started.stop()


async def test_prometheus_tells_services_regions_roles_and_versions_apart(host: FleetHost, http: Http) -> None:
    fleet = host.fleet(REGION)
    state = await fleet.deploy(stand_in("6"))
    await fleet.deploy(stand_in("7"))
    await fleet.shift(50)
    async with Users(state.entry) as users:
        while users.by_role()["canary"] < 10:
            await asyncio.sleep(0.05)
    seen = {"service": "support-llm", "region": REGION, "role": "canary", "version": "7"}
    canary = users.by_role()["canary"]
    await until_measured(host, http, "vllm:request_success_total", seen, at_least=canary)
    await until_measured(host, http, "envoy_cluster_upstream_rq_total", seen, at_least=canary)
    await until_measured(host, http, "envoy_cluster_upstream_rq_total", seen | {"role": "shadow"}, at_least=0)


async def until_measured(host: FleetHost, http: Http, metric: str, labels: dict[str, str], *, at_least: int) -> None:
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        reply = await http.get(f"{host.prometheus_url}/api/v1/query?query={metric}{{{selector}}}")
        if any(float(series["value"][1]) >= at_least for series in reply.json()["data"]["result"]):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{metric}{{{selector}}} never reached {at_least}")


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as http:
        yield http
