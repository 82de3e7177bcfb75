"""Write down the key under which vLLM 0.32 keeps a compiled model, factor by factor.

vLLM hashes everything that decides whether a compiled model may be used again, and keeps only the hash.
A build needs the factors: when another start misses the cache, they say which of them differs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FILE_VARIABLE = "TIDEGATE_COMPILE_KEY"
"""Names the file to write; without it nothing is written. Not a VLLM_ name: those are in the key themselves."""

Factors = dict[str, str]


def register() -> None:
    """Have the key written when vLLM computes it; vLLM calls this in each of its processes."""
    if FILE_VARIABLE not in os.environ:
        return
    from vllm.compilation import caching

    original = caching.aot_compile_hash_factors
    if getattr(original, "wrapped_by_tidegate", False):
        return

    def hash_factors(vllm_config: Any) -> list[str]:
        found: list[str] = original(vllm_config)
        _write(Path(os.environ[FILE_VARIABLE]), factors_of(vllm_config))
        return found

    hash_factors.wrapped_by_tidegate = True  # type: ignore[attr-defined]
    caching.aot_compile_hash_factors = hash_factors


def factors_of(vllm_config: Any) -> Factors:
    """Every factor under a name: `env.VLLM_...`, `model_config.max_model_len`, `inductor.system`, ..."""
    import vllm
    from vllm import envs

    environment = {f"env.{name}": str(value) for name, value in envs.compile_factors().items()}
    return {"vllm": vllm.__version__} | environment | dict(_configs(vllm_config)) | dict(_inductor())


def _configs(vllm_config: Any) -> Iterator[tuple[str, str]]:
    """The fields that each part of vLLM's configuration hashes, and its hash for what is no field."""
    for part in dataclasses.fields(vllm_config):
        config = getattr(vllm_config, part.name)
        if not hasattr(config, "compute_hash"):
            continue
        with _recorded_fields() as fields:
            yield f"{part.name}.hash", str(config.compute_hash())
        for name, value in fields.items():
            yield f"{part.name}.{name}", str(value)
    # Hashed by hand, not field by field.
    for name in ("max_num_batched_tokens", "max_num_seqs"):
        yield f"scheduler_config.{name}", str(getattr(vllm_config.scheduler_config, name))


@contextmanager
def _recorded_fields() -> Iterator[dict[str, object]]:
    """What passes through vLLM's own `get_hash_factors` meanwhile."""
    from vllm.config import utils

    original: Callable[..., dict[str, object]] = utils.get_hash_factors
    found: dict[str, object] = {}

    def get_hash_factors(config: Any, ignored_factors: set[str]) -> dict[str, object]:
        fields = original(config, ignored_factors)
        found.update(fields)
        return fields

    utils.get_hash_factors = get_hash_factors
    try:
        yield found
    finally:
        utils.get_hash_factors = original


def _inductor() -> Iterator[tuple[str, str]]:
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor
    from torch._inductor.codecache import CacheBase, torch_key

    for name, value in CacheBase.get_system().items():
        yield f"inductor.system.{name}", str(value)
    yield "torch.sources", torch_key().hex()
    for prefix, config in (("inductor", inductor), ("functorch", functorch)):
        for name, value in config.save_config_portable().items():
            yield f"{prefix}.{name}", str(value)


def _write(path: Path, factors: Factors) -> None:
    """Whole or not at all; ranks of one engine write the same."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(dict(sorted(factors.items())), indent=1), encoding="utf-8")
    part.replace(path)
