"""`tidegate doctor` against API servers on sockets: what it tells of each region, and what it exits with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from fakes.clusters.doctor_region import GPU, NAMESPACE, Region, fleet
from fakes.fleet import region as place
from fakes.kube.server import FakeServers, serving
from fakes.services.http import page
from fakes.terminal import Tidegate

from rollouts.kube.resources import RESOURCE_QUOTAS

EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml"
REGIONS = ("eu-west-1", "us-east-1")


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    """A Prometheus that answers 5 to every query: so many seconds are between two scrapes."""
    result = [{"metric": {}, "value": [1767225600, "5"]}]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})
    with page(lambda: body) as address:
        yield f"http://{address}"


class Served:
    """Regions behind sockets; they are touched in the servers' thread alone."""

    def __init__(self, every: Mapping[str, Region], servers: FakeServers) -> None:
        self._every = every
        self._servers = servers
        self.vanish = servers.vanish

    def do(self, name: str, action: Callable[[Region], object]) -> None:
        """Do it to a region, and let it come to rest."""

        def then_rest() -> None:
            action(self._every[name])
            self._every[name].be_looked_at()

        self._servers.do(then_rest)


@pytest.fixture
def regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    both = fleet(regions={name: place(name) for name in REGIONS})
    every = {name: Region(both, name=name, real_time=True) for name in REGIONS}
    with serving({name: region.api for name, region in every.items()}, tmp_path, namespace=NAMESPACE) as servers:
        monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
        looked_after = servers.do(lambda: asyncio.ensure_future(look_after(every.values())))
        yield Served(every, servers)
        servers.do(looked_after.cancel)


async def look_after(regions: Iterable[Region]) -> None:
    """As controllers do, however long a command takes."""
    while True:
        for region in regions:
            region.be_looked_at()
        await asyncio.sleep(1)


@pytest.fixture
def spec(tmp_path: Path, prometheus: str) -> Path:
    """The example's delivery, to two small regions."""
    said = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    said["fleet"] = {
        "kind": "argo",
        "namespace": NAMESPACE,
        "gateway": {"name": "users", "namespace": "gateways", "hosts": ["support-llm.example.com"]},
        "regions": {name: place(name, prometheus=prometheus) for name in REGIONS},
    }
    said["regions"] = {"waves": [list(REGIONS)]}
    said["engine"]["accelerator"] = "nvidia-h200-141gb"
    path = tmp_path / "delivery.yaml"
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    return path


def shrink_quota(region: Region) -> None:
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "3"}}})


@pytest.mark.slow(reason="the doctor looks twice, and waits for a region that is away")
def test_regions_that_are_well_a_finding_in_one_and_one_that_is_away(
    regions: Served, spec: Path, tidegate: Tidegate
) -> None:
    said = tidegate("doctor", str(spec))
    assert (said.out, said.code) == ("eu-west-1: nothing is wrong\nus-east-1: nothing is wrong\n", 0)

    regions.do("us-east-1", shrink_quota)
    said = tidegate("doctor", str(spec))
    assert said.code == 1
    assert "us-east-1: 1 error\n" in said.out
    assert "(pods-refused)\n      seen:  quota gpus has 1 requests.nvidia.com/gpu left" in said.out
    assert "      cause: the API server does not allow the pods" in said.out
    assert "      remediation:  raise the quota" in said.out

    said = tidegate("doctor", str(spec), "--region", "us-east-1", "--output", "json")
    (region,) = said.json
    assert said.code == 1
    assert (region["region"], region["reachable"]) == ("us-east-1", True)
    (found,) = region["findings"]
    assert (found["code"], found["severity"]) == ("pods-refused", "error")
    assert found["remediation"]

    # That one is away counts for more than any finding in another.
    regions.vanish("eu-west-1")
    said = tidegate("doctor", str(spec))
    assert said.code == 4
    assert "us-east-1: 1 error\n" in said.out
    assert "eu-west-1: https://127.0.0.1:" in said.out
