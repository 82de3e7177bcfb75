"""The entrypoint as an engine carries it: its files, and their digests.

Our plugin for vLLM lies next to it, as installed: on the import path it is found in any environment, also in one that
somebody else made.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine_images import entrypoint, environment
from engine_images.entrypoint.manifest import digest_of

PACKAGE = "tidegate_entrypoint"
"""The name of the entrypoint inside an image, where there is no `engine_images`."""


PLUGIN = "tidegate_vllm_plugin-0.1.0.dist-info"
"""What makes the plugin an installed one: Python finds its entry points there."""


def entrypoint_files() -> dict[str, Path]:
    """The files of the entrypoint and the plugin, by their path below the entrypoint's folder in an image."""
    own, recipes = Path(entrypoint.__file__).parent, Path(environment.__file__).parent
    return {
        **{f"{PACKAGE}/{file.relative_to(own).as_posix()}": file for file in sorted(own.rglob("*.py"))},
        **{file.name: file for file in sorted((recipes / "plugin").glob("*.py"))},
        **{f"{PLUGIN}/{file.name}": file for file in sorted((recipes / "carried").iterdir())},
    }


def entrypoint_digest() -> str:
    """One digest over the entrypoint's files."""
    whole = hashlib.sha256()
    for path, file in entrypoint_files().items():
        whole.update(f"{path} {digest_of(file)}\n".encode())
    return whole.hexdigest()
