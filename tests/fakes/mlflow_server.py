"""MLflow's own tracking server, which hands out artifacts itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fakes.servers import free_address, running

# Seven processes that no test needs, each of which loads all of MLflow.
NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@contextmanager
def mlflow_server(
    folder: Path, address: str | None = None, *, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Its tracking URI while it runs; `folder` outlives it, and so may `address`, a free one otherwise.

    `settings` are environment variables of the server alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    address = address or free_address()
    host, _, port = address.partition(":")
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--serve-artifacts"]
    ready, log = f"http://{address}/health", folder / "server.log"
    with running(command, ready=ready, log=log, within=120, settings={**NO_JOBS, **(settings or {})}):
        yield f"http://{address}"
