"""MLflow in a state folder, as a first command makes it there: copied, because making one takes MLflow seconds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from fakes.services.shared import shared_file

from registry.adapters.mlflow_store import embedded_uri

_MAKE = """
import sys
from registry.adapters.mlflow_library import LibraryStore

LibraryStore(sys.argv[1]).names_like("", 1)
"""


def write_embedded_mlflow(state: Path) -> str:
    """An empty one in that folder; returns its tracking URI."""
    state.mkdir(parents=True, exist_ok=True)
    shutil.copy(shared_file("mlflow.db", _made), state / "mlflow.db")
    return embedded_uri(state)


def _made(path: Path) -> None:
    # In a process of its own: ours may never need MLflow's library.
    subprocess.run([sys.executable, "-c", _MAKE, f"sqlite:///{path}"], check=True)
