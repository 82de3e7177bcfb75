"""`tidegate rollback` with the clusters alone: a kubeconfig, the spec, and nothing else that answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from alike import long
from fakes.clusters.served import Clusters, clusters, delivery_to

pytestmark = pytest.mark.slow(reason="an API server, MLflow that breaks, and a process for each command")

REGIONS = ("eu-west-1", "us-east-1")
TIDEGATE = "import sys; from tidegate.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Its golden set is not there: the one who is in a hurry has the spec alone."""
    said = delivery_to([[each] for each in REGIONS], name="support-llm", engine="https://llm.example")
    path = tmp_path / "delivery.yaml"
    path.write_text(yaml.safe_dump(said))
    return path


@pytest.fixture
def there(spec: Path, tmp_path: Path) -> Iterator[Clusters]:
    """Both regions serve version 1."""
    with clusters(yaml.safe_load(spec.read_text()), tmp_path) as found:
        found.serve("1")
        yield found


def rollback(spec: Path, there: Clusters, *more: str, mlflow: str = "") -> subprocess.CompletedProcess[str]:
    """On a machine of which only the kubeconfig is known."""
    home = spec.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(there.servers.kubeconfig)}
    if mlflow:
        environment |= {"MLFLOW_TRACKING_URI": mlflow, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        environment |= {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
    command = [sys.executable, "-c", TIDEGATE, "rollback", str(spec), *more]
    return subprocess.run(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("away", [long("nowhere"), long("refuses"), "mute", "full"])
def test_users_are_on_the_stable_with_a_kubeconfig_alone(
    spec: Path, there: Clusters, away: str, mute: str, full: str
) -> None:
    there.try_out("2", 50)
    assert there.splits() == [(50, 0), (50, 0)]
    uri = {"nowhere": "", "refuses": "http://127.0.0.1:9", "mute": mute, "full": full}[away]
    said = rollback(spec, there, mlflow=uri)
    assert (said.returncode, said.stdout) == (0, "eu-west-1: version 1\nus-east-1: version 1\n"), said.stderr
    assert there.splits() == [(0, 0), (0, 0)]
    assert there.versions() == ["1", "1"]
    assert said.stderr.count("all users are on version 1\n") == 2
    assert "not recorded, and no delivery elsewhere was told: " in said.stderr
    assert not (spec.parent / "home" / ".tidegate" / "engines").exists()
    assert not (spec.parent / "home" / ".tidegate" / "mlflow.db").exists()


@pytest.mark.long
def test_a_region_that_is_away_holds_up_no_other(spec: Path, there: Clusters) -> None:
    there.try_out("2", 50)
    there.servers.vanish("us-east-1")
    said = rollback(spec, there)
    assert said.returncode == 4
    assert said.stdout == "eu-west-1: version 1\n"
    assert "us-east-1 cannot be seen" in said.stderr
    assert there.splits()[0] == (0, 0)


@pytest.mark.long
def test_further_back_has_to_be_said_confirmed_and_where_it_is_cold_started(
    spec: Path, there: Clusters, mute: str
) -> None:
    """As docs/guides/break-glass.md has it: everything is promoted, MLflow is away, the version is bad."""

    def back(*words: str) -> tuple[int, str, str]:
        said = rollback(spec, there, *words, mlflow=mute)
        return said.returncode, said.stdout, said.stderr

    def everywhere(version: str) -> str:
        return "".join(f"{region}: version {version}\n" for region in REGIONS)

    for version in ("2", "3", "4"):
        there.serve(version)
    assert back()[:2] == (0, everywhere("4"))
    code, _, told = back("--to", "previous")
    assert (code, "production would move (eu-west-1: 4 -> 3 (warm)" in told, "add --yes" in told) == (2, True, True)
    code, _, told = back("--to", "1", "--yes")
    assert (code, "version 1 is not warm in eu-west-1, us-east-1; --start starts it again there" in told) == (2, True)
    assert there.versions() == ["4", "4"]
    code, out, told = back("--to", "previous", "--yes")
    assert (code, out, "`champion` was not moved" in told) == (0, everywhere("3"), True), told
    code, out, told = back("--to", "1", "--yes", "--start")
    assert (code, out, told.count("version 1 is no longer warm and is started again")) == (0, everywhere("1"), 2), told
    assert (there.versions(), there.splits()) == (["1", "1"], [(0, 0), (0, 0)])
    assert back("--to", "1", "--yes", "--start")[:2] == (0, everywhere("1"))
