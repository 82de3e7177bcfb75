"""What a command loads before it has anything to do: each step of a workflow is a process, and pays for it again.

MLflow's client alone takes a second of a processor: it is loaded once MLflow is asked. The others are loaded by the
steps that need them: scipy's statistics by gates.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LATER = (
    "hera",
    "kubernetes",
    "locust",
    "matplotlib",
    "mlflow",
    "pandas",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy",
    "torch",
)
OF_A_STEP = (*LATER, "aiohttp", "gevent", "pyarrow", "tokenizers", "uvicorn")
ROOT = Path(__file__).parents[3]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (*sorted((ROOT / "tidegate" / "cli").rglob("*.py")), *sorted((ROOT / "tidegate").glob("*.py")))
]
"""Every command and every use case."""
OF_AN_EXTRA = "engine_images.adapters.oci_build"
"""All of `MODULES` must load with what `pip install tidegate` brings; this one does not."""
IN_STEPS = (
    *("tidegate.standing", "tidegate.steps", "tidegate.cli.stage", "tidegate.cli.serve"),
    *("engine_images.adapters.model_version", "engine_images.adapters.oci_read", "registry.versions"),
    *("gates.adapters.judge", "gates.adapters.prometheus", "gates.adapters.text_models"),
    *("pipelines.adapters.chat", "pipelines.adapters.clusters", "pipelines.adapters.engines"),
    "pipelines.authority.identities",
    *("scipy.optimize", "scipy.stats"),
)
OF = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
"""Which distributions bring each module."""
WITHOUT_EXTRAS = """
import importlib, sys
allowed, installed, modules = (line.split() for line in sys.stdin.read().splitlines())


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(installed) - set(allowed):
            raise ModuleNotFoundError(f"{name} is of an extra", name=name)


sys.meta_path.insert(0, Refuse())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        print(module)
"""


def test_commands_load_later_what_they_may_not_need() -> None:
    code = "import sys, tidegate.delivering, tidegate.steps, tidegate.standing, tidegate.way_back\n"
    code += "print(*(name for name in sys.argv[1:] if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code, *LATER], capture_output=True, check=True).stdout == b"\n"


def test_evidence_in_a_file_is_judged_without_what_a_delivery_or_a_client_needs() -> None:
    gates = ROOT / "examples" / "gates"
    words = ["gate", "check", str(gates / "gates.yaml"), str(gates / "evidence.jsonl")]
    unneeded = ["httpx", "matplotlib", "pipelines.spec", "registry", "rich", "slo.spec"]
    code = "import sys; from tidegate.cli import main; names = sys.argv.pop().split(); code = main(sys.argv[1:])\n"
    code += "print(*(name for name in names if name in sys.modules), file=sys.stderr); sys.exit(code)"
    command = [sys.executable, "-c", code, *words, " ".join(unneeded)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "\n"), ended.stderr


def refused(allowed: set[str], modules: Sequence[str]) -> list[str]:
    """Which of the modules cannot be imported where nothing else is installed."""
    lines = "\n".join(" ".join(names) for names in (allowed, OF, modules))
    command = [sys.executable, "-c", WITHOUT_EXTRAS]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


def test_core_commands_load_nothing_of_an_extra() -> None:
    requires = {canonicalize_name(each.name): each.requires or [] for each in distributions()}
    core: set[str] = set()
    left = ["tidegate"]
    while left:
        if (name := left.pop()) not in core:
            core.add(name)
            needed = map(Requirement, requires[name])
            left += [canonicalize_name(each.name) for each in needed if not each.marker or each.marker.evaluate()]
    allowed = {module for module, names in OF.items() if names & core} | {"tidegate"}
    assert not {"sqlalchemy", "matplotlib", "gevent", "tokenizers", "uv"} & allowed
    assert refused(allowed, [*MODULES, OF_AN_EXTRA]) == [OF_AN_EXTRA]


def test_steps_load_with_what_their_image_has() -> None:
    lock = (ROOT / "runtime.lock").read_text(encoding="utf-8")
    packed = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)} | {"tidegate"}
    allowed = {module for module, names in OF.items() if names & packed}
    assert not {"sqlalchemy", "matplotlib", "pandas", "locust", "gevent", "uv", "torch"} & allowed
    assert refused(allowed, IN_STEPS) == []


def test_a_step_in_a_cluster_asks_a_server_with_mlflows_client_alone(tmp_path: Path) -> None:
    """What `stage`, `status`, `approve`, `resume` and `rollback` load until they have asked MLflow and a cluster."""
    code = """
import asyncio, sys
sys.modules |= dict.fromkeys(("pandas", "pyarrow", "sqlalchemy"))  # as in a pod, which has none of these
import tidegate.steps, tidegate.standing
import pipelines.authority.answering, tidegate.delivering, tidegate.way_back
import pipelines.adapters.clusters
from registry.deliveries import MlflowDeliveries
from registry.errors import StoreUnreachable
from rollouts.kube.client import credential_provider
from tidegate.core.clock import SystemClock
try:
    MlflowDeliveries("http://127.0.0.1:1").summary("0" * 32)
except StoreUnreachable as error:
    assert "no answer" in str(error), error
print(*(name for name in sys.argv[2:] if name in sys.modules))
credential = credential_provider("eu", clock=SystemClock(), kubeconfig=sys.argv[1]).credential()
assert asyncio.run(credential).authorization == "Bearer t"
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""
    config = {
        "current-context": "eu",
        "contexts": [{"name": "eu", "context": {"cluster": "eu", "user": "eu"}}],
        "clusters": [{"name": "eu", "cluster": {"server": "https://eu.example:6443"}}],
        "users": [{"name": "eu", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    names = [name for name in OF_A_STEP if name not in ("mlflow", "pandas", "pyarrow", "sqlalchemy")]
    command = [sys.executable, "-c", code, str(tmp_path / "config"), *names]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # The official client reads the kubeconfig, and comes with the first request.
    assert (ended.stdout, ended.stderr) == ("\nkubernetes\n", "")
