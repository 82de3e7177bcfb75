"""Make vLLM 0.32 on CPU use the ahead-of-time compile artifact that it saves.

On CPU the artifact's `compiled_fn` is a plain function, but vLLM calls `finalize_loading()` on it,
fails with AttributeError, warns, and compiles again: every start is a cold one. Giving the function
the method that vLLM expects is all that is missing. On a GPU the method exists and nothing changes.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Wrap `torch.compiler.load_compiled_function`; vLLM calls this in each of its processes."""
    import torch.compiler

    original = torch.compiler.load_compiled_function
    if getattr(original, "wrapped_by_tidegate", False):
        return

    def load(file: Any, **options: Any) -> Any:
        loaded = original(file, **options)
        compiled = loaded._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = _nothing_to_finalize
        return loaded

    load.wrapped_by_tidegate = True  # type: ignore[attr-defined]
    torch.compiler.load_compiled_function = load


def _nothing_to_finalize(_vllm_config: object) -> None:
    """A plain function is complete as it was loaded."""
