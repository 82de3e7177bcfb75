"""Which versions of vLLM are known here: one generated file each, written by `make pin-vllm`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from engine_images.pinned.model import PinnedVllm

_PREFIX, _SUFFIX = "vllm-", ".json"


def known_versions() -> tuple[str, ...]:
    """The versions of vLLM that `pinned_vllm` knows."""
    names = (entry.name for entry in files("engine_images.pinned").iterdir() if entry.name.endswith(_SUFFIX))
    return tuple(sorted(name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names))


@cache
def pinned_vllm(version: str) -> PinnedVllm | None:
    """What this version of vLLM accepts; None for a version that nobody has described yet."""
    if version not in known_versions():
        return None
    text = (files("engine_images.pinned") / f"{_PREFIX}{version}{_SUFFIX}").read_text(encoding="utf-8")
    return PinnedVllm.model_validate_json(text)
