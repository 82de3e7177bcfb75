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
from fakes.clusters.region import NAMESPACE, moved_in
from fakes.clusters.served import Clusters, clusters, delivery_to
from fakes.kube.requests import Call

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


def writes(there: Clusters) -> list[Call]:
    """Whatever changed anything, in all regions."""
    return [call for each in REGIONS for call in there.servers.api(each).calls if call.writes]


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


def test_where_others_have_our_names_nothing_is_taken_back_and_nobody_is_said_to_be_gone(
    spec: Path, tmp_path: Path
) -> None:
    with clusters(yaml.safe_load(spec.read_text()), tmp_path) as found:
        for region in REGIONS:
            found.servers.do(lambda one=region: moved_in(found.servers.api(one).cluster, "support-llm", NAMESPACE))
        said = rollback(spec, found)
        assert said.returncode == 4
        for region in REGIONS:
            others = f"{region}: Rollout support-llm in {NAMESPACE} is not tidegate's (managed by Helm release chat"
            assert f"tidegate: {others}" in said.stderr
        assert "serves nobody" not in said.stderr
        assert writes(found) == []


def test_a_wave_that_was_promoted_goes_back_to_what_the_others_serve(spec: Path, there: Clusters) -> None:
    """The ledger is away; what eu-west-1 keeps as its way back is what us-east-1 serves still."""
    region = there.region("eu-west-1")
    there.try_out("2", 50)
    there.servers.run(region.fleet.promote())
    assert there.versions() == ["2", "1"]
    said = rollback(spec, there)
    assert (said.returncode, there.versions()) == (0, ["1", "1"]), said.stderr
    assert there.splits() == [(0, 0), (0, 0)]


@pytest.mark.long
def test_further_back_has_to_be_said_and_confirmed(spec: Path, there: Clusters) -> None:
    there.serve("2")
    assert rollback(spec, there).stdout == "eu-west-1: version 2\nus-east-1: version 2\n"
    refused = rollback(spec, there, "--to", "previous")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "tidegate: production would move (eu-west-1: 2 -> 1 (warm); us-east-1: 2 -> 1 (warm)), and there is no"
        " terminal to confirm it on; add --yes\n"
    )
    assert there.versions() == ["2", "2"]
    said = rollback(spec, there, "--to", "previous", "--yes")
    assert (said.returncode, said.stdout) == (0, "eu-west-1: version 1\nus-east-1: version 1\n"), said.stderr
    assert "`champion` was not moved" in said.stderr
    assert there.versions() == ["1", "1"]
    again = rollback(spec, there, "--to", "1")
    assert (again.returncode, again.stdout) == (0, said.stdout), again.stderr


@pytest.mark.long
def test_the_version_before_the_last_is_reached_where_it_is_warm(spec: Path, there: Clusters) -> None:
    there.serve("2")
    there.serve("3")
    said = rollback(spec, there, "--to", "1", "--yes")
    assert (said.returncode, there.versions()) == (0, ["1", "1"]), said.stderr


@pytest.mark.long
def test_a_version_that_is_cold_is_started_again_only_when_asked_so(spec: Path, there: Clusters) -> None:
    there.serve("2")
    unknown = rollback(spec, there, "--to", "7", "--yes")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == (
        "tidegate: version 7 is not warm in eu-west-1, us-east-1; --start starts it again there, which takes minutes\n"
    )


@pytest.mark.long
def test_a_version_that_is_cold_is_started_again_from_what_the_region_remembers(spec: Path, there: Clusters) -> None:
    """With MLflow away: its image stands in the region's own ReplicaSets."""
    for version in ("2", "3", "4"):
        there.serve(version)
    cold = rollback(spec, there, "--to", "1", "--yes", mlflow="http://127.0.0.1:9")
    assert (cold.returncode, cold.stdout, there.versions()) == (2, "", ["4", "4"])
    assert "version 1 is not warm in eu-west-1, us-east-1; --start starts it again there" in cold.stderr
    said = rollback(spec, there, "--to", "1", "--yes", "--start", mlflow="http://127.0.0.1:9")
    assert (said.returncode, said.stdout) == (0, "eu-west-1: version 1\nus-east-1: version 1\n"), said.stderr
    assert said.stderr.count("version 1 is no longer warm and is started again") == 2
    assert "`champion` was not moved" in said.stderr
    assert (there.versions(), there.splits()) == (["1", "1"], [(0, 0), (0, 0)])
    again = rollback(spec, there, "--to", "1", "--yes", "--start")
    assert (again.returncode, again.stdout) == (0, said.stdout), again.stderr


@pytest.mark.long
def test_everything_is_promoted_and_mlflow_is_away(spec: Path, there: Clusters, mute: str) -> None:
    """As docs/guides/break-glass.md has it: the delivery is over, its version is bad."""
    there.serve("2")
    stays = rollback(spec, there, mlflow=mute)
    assert (stays.returncode, there.versions()) == (0, ["2", "2"]), stays.stderr
    back = rollback(spec, there, "--to", "previous", "--yes", mlflow=mute)
    assert (back.returncode, back.stdout) == (0, "eu-west-1: version 1\nus-east-1: version 1\n"), back.stderr
    assert "`champion` was not moved" in back.stderr
    once_more = rollback(spec, there, "--to", "previous", "--yes", mlflow=mute)
    assert (once_more.returncode, once_more.stdout) == (2, "")
    assert "no region keeps a version before its own warm; choose one: --to VERSION --start" in once_more.stderr
    assert there.versions() == ["1", "1"]
