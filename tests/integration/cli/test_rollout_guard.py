"""`tidegate rollout guard` as the process that its pod runs, against an API server on a socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.clusters.region import NAME, NAMESPACE
from fakes.clusters.served import Clusters, clusters, delivery_to
from fakes.terminal import Tidegate
from fakes.waiting import PATIENCE_SECONDS

from rollouts.adapters.sockets import free_port

REGION = "eu-west-1"
TIDEGATE = "import sys; from tidegate.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Clusters]:
    """Half of the users are on a canary that nobody carries any more."""
    with clusters(delivery_to([[REGION]], name=NAME, engine="https://llm.example"), tmp_path) as found:
        found.serve("1")
        found.try_out("2", 50)
        yield found


@contextmanager
def guarding(there: Clusters, home: Path, probes: int) -> Iterator[subprocess.Popen[str]]:
    """It runs as in its pod, where the API server is known by other means; ended at the latest with the block."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(there.servers.kubeconfig)}
    words = ["rollout", "guard", NAME, "--namespace", NAMESPACE, "--region", REGION, "--context", REGION]
    command = [sys.executable, "-c", TIDEGATE, *words, "--probes", str(probes)]
    with subprocess.Popen(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as said:
            return said.status, said.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until(port: int, path: str, status: int) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (said := answer(port, path))[0] != status:
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return said[1]


@pytest.mark.slow(reason="the guard's process starts, and looks once before it ends")
def test_it_is_ready_says_so_and_ends_when_it_is_told(there: Clusters, tmp_path: Path) -> None:
    """What it rolls back, and when, is told where no half a minute has to pass: `tests/unit/rollouts/cluster`."""
    port = free_port()
    with guarding(there, tmp_path, port) as process:
        until(port, "/readyz", 200)
        assert answer(port, "/healthz")[0] == 200
        assert answer(port, "/metrics")[0] == 404
        assert process.stdout is not None
        assert process.stdout.readline() == "guarded\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_without_its_rights_it_lives_is_not_ready_and_says_which_it_lacks(there: Clusters, tmp_path: Path) -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    there.servers.do(lambda: there.servers.api(REGION).access.allow_only(rule))
    port = free_port()
    with guarding(there, tmp_path, port) as process:
        until(port, "/healthz", 200)
        assert process.stdout is not None
        assert (
            "may not create leases, update leases support-llm-carrier, get httproutes support-llm"
            in process.stdout.readline()
        )
        assert "may not create leases, update leases support-llm-carrier" in until(port, "/readyz", 503)
    assert there.splits() == [(50, 0)]


def test_a_port_that_is_taken_is_said(tidegate: Tidegate) -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = str(taken.getsockname()[1])
        done = tidegate("rollout", "guard", NAME, "--region", REGION, "--namespace", NAMESPACE, "--probes", port)
    assert done.code == 4
    assert f"cannot listen on port {port}" in done.err
