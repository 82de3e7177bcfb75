"""The commands of docs/guides/break-glass.md that need no tidegate, as that page has them, by kubectl itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.clusters.served import Clusters, clusters, delivery_to
from fakes.waiting import until

PAGE = (Path(__file__).parents[3] / "docs/guides/break-glass.md").read_text()
COMMANDS = re.findall(r"^\$ (kubectl .*)$", PAGE, re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Clusters]:
    """Half of the users are on a canary."""
    with clusters(delivery_to([["eu-west-1"]], name="support-llm", engine="https://llm.example"), tmp_path) as found:
        found.serve("1")
        found.try_out("2", 50)
        yield found


def kubectl(there: Clusters, command: str, home: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(there.servers.kubeconfig)}
    said = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout


def named(part: str) -> str:
    (found,) = [command for command in COMMANDS if part in command]
    return found


def until_users_are_back(there: Clusters) -> None:
    until("users are back", lambda: there.splits() == [(0, 0)])


def test_an_abort_by_kubectl_takes_users_back(there: Clusters, tmp_path: Path) -> None:
    kubectl(there, named("patch rollout"), tmp_path)
    until_users_are_back(there)
    assert kubectl(there, named("jsonpath='{.status.abort}"), tmp_path).startswith("true ")
    assert kubectl(there, named("backendRefs[*].weight"), tmp_path) == "100 0"


def test_a_route_written_by_kubectl_takes_users_back_without_a_controller(there: Clusters, tmp_path: Path) -> None:
    there.stop_controllers()
    kubectl(there, named("patch rollout"), tmp_path)
    assert there.splits() == [(50, 0)]
    kubectl(there, named("patch httproute"), tmp_path)
    until_users_are_back(there)
