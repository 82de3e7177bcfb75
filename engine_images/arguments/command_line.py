"""Arguments as vLLM's command line has them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from engine_images.arguments.model import Arguments, ArgumentValue
from engine_images.pinned.model import Option, PinnedVllm


def command_line(args: Arguments, vllm: PinnedVllm | None) -> tuple[str, ...]:
    """The words behind the server's name; two specs that say the same give the same words."""
    options = vllm.options if vllm else {}
    return tuple(word for name in sorted(args) for word in _words(name, args[name], options.get(name, Option())))


def _words(name: str, value: ArgumentValue, option: Option) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif value is False:
        yield f"--no-{name}"
    elif isinstance(value, list) and option.repeated:
        yield from (f"--{name}={_text(item)}" for item in value)
    elif isinstance(value, list) and option.many:
        yield f"--{name}"
        yield from (_text(item) for item in value)
    else:
        # One word, so that a value which looks like an argument stays a value.
        yield f"--{name}={_text(value)}"


def _text(value: ArgumentValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
