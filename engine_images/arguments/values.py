"""The values of vLLM's arguments: what those are that tidegate reasons about, and how the command line has them.

Names are those of vLLM's command line, values are as YAML has them. Any other argument passes as it is: what is wrong
with it vLLM says itself when it starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

ArgumentValue = JsonValue
"""Text, a number, true or false; a list for an option that takes several; a mapping where vLLM wants JSON."""

Arguments = Mapping[str, ArgumentValue]
"""By name, without the dashes in front: `max-model-len`."""


_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}

KV_CACHE, UTILIZATION = "kv-cache-memory-bytes", "gpu-memory-utilization"
"""The size of the KV cache, and the share of a GPU that an engine may take."""

AUTO = "auto"
"""A length that vLLM chooses itself: as much as fits into memory."""


def read_count(value: ArgumentValue) -> int | None:
    """`8192`, `8k` (8000), `8K` (8192) or `1.5m` as a number; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    match = _COUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    if match[1]:
        return int(float(match[1]) * 1000 ** _POWER[match[2]])
    return int(match[3]) * (1024 ** _POWER[match[4].lower()] if match[4] else 1)


def _is_integer(value: ArgumentValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_DTYPES = ("auto", "bfloat16", "float", "float16", "float32", "half")
_KINDS: Mapping[str, tuple[Callable[[ArgumentValue], bool], str, dict[str, JsonValue]]] = {
    "text": (lambda value: isinstance(value, str), "text", {"type": "string"}),
    "integer": (_is_integer, "a whole number", {"type": "integer"}),
    "count": (
        lambda value: read_count(value) is not None,
        "a whole number, or one such as 8k (8000) or 8K (8192)",
        {"type": ["integer", "string"]},
    ),
    "length": (
        lambda value: value == AUTO or read_count(value) is not None,
        "a whole number, one such as 8k (8000) or 8K (8192), or auto",
        {"type": ["integer", "string"]},
    ),
    "number": (lambda value: isinstance(value, float) or _is_integer(value), "a number", {"type": "number"}),
    "mapping": (lambda value: isinstance(value, dict), "a mapping", {"type": "object"}),
    "dtype": (lambda value: value in _DTYPES, f"one of {', '.join(_DTYPES)}", {"enum": list(_DTYPES)}),
}
"""What each kind takes, in words, and for editors."""

KIND_OF = {
    "max-model-len": "length",
    **dict.fromkeys(("kv-cache-memory-bytes", "max-num-batched-tokens"), "count"),
    **dict.fromkeys(("gpu-memory-utilization", "cpu-offload-gb"), "number"),
    **dict.fromkeys(("compilation-config", "speculative-config"), "mapping"),
    "dtype": "dtype",
    **dict.fromkeys(("kv-cache-dtype", "quantization", "spec-method", "spec-model"), "text"),
    **dict.fromkeys(
        (
            *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "prefill-context-parallel-size"),
            *("max-num-seqs", "block-size"),
        ),
        "integer",
    ),
}
"""The arguments that tidegate reasons about."""

SEVERAL = frozenset(
    {
        *("allowed-media-domains", "collect-detailed-traces", "cpu-offload-params", "cudagraph-capture-sizes"),
        *("ignore-patterns", "kv-cache-dtype-skip-layers", "logits-processors", "lora-modules", "lora-target-modules"),
        *("numa-bind-cpus", "numa-bind-nodes", "offload-params", "sleep-preserve-parameter-names"),
    }
)
"""Take several words behind one name. A list for any other is one word of JSON: behind the name of a flag, a word of
its own would be the model."""
REPEATED = frozenset({"middleware"})
"""Several values are the argument several times."""


def complaint(name: str, value: ArgumentValue) -> str | None:
    """What the argument would take instead of `value`; None when it takes it, or when only vLLM knows."""
    if value is None:
        return "a value, or no such line"
    if name in SEVERAL and isinstance(value, list) and any(str(item).startswith("-") for item in value):
        # With several values there is no `--name=value`, so vLLM would take it for an option.
        return "a list without text that begins with a dash"
    takes, expected, _ = _KINDS.get(KIND_OF.get(name, ""), (lambda _: True, "", {}))
    return None if takes(value) else expected


def schema_of(name: str) -> dict[str, JsonValue]:
    """What an editor is told of an argument of `KIND_OF`."""
    return _KINDS[KIND_OF[name]][2]


def command_line(args: Arguments) -> tuple[str, ...]:
    """The words behind the server's name; two specs that say the same give the same words."""
    return tuple(word for name in sorted(args) for word in _words(name, args[name]))


def _words(name: str, value: ArgumentValue) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif value is False:
        yield f"--no-{name}"
    elif isinstance(value, list) and name in REPEATED:
        yield from (f"--{name}={_text(item)}" for item in value)
    elif isinstance(value, list) and name in SEVERAL:
        yield f"--{name}"
        yield from (_text(item) for item in value)
    else:
        # One word, so that a value which looks like an argument stays a value.
        yield f"--{name}={_text(value)}"


def _text(value: ArgumentValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
