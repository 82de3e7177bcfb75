"""The values of vLLM's arguments: whether an option takes one, what it means, and how the command line has it.

Names are those of vLLM's command line, values are as YAML has them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from pydantic import JsonValue

from engine_images.arguments.pinned import Option, OptionKind, PinnedVllm

ArgumentValue = JsonValue
"""Text, a number, true or false; a list for an option that takes several; a mapping where vLLM wants JSON."""

Arguments = Mapping[str, ArgumentValue]
"""By name, without the dashes in front: `max-model-len`."""


_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}

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


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def complaint(option: Option, value: ArgumentValue) -> str | None:
    """What the option would take instead of `value`; None when it takes it."""
    if not option.many:
        return _complaint_about_one(option, value)
    values = value if isinstance(value, list) else [value]
    wrong = next((text for item in values if (text := _complaint_about_one(option, item))), None)
    if wrong is None and any(isinstance(item, str) and item.startswith("-") for item in values):
        # With several values there is no `--name=value`, so vLLM would take it for an option.
        wrong = "no text that begins with a dash"
    return f"a list of: {wrong}" if wrong else None


def _complaint_about_one(option: Option, value: ArgumentValue) -> str | None:
    if option.choices and value not in option.choices:
        return _choices(option, value)
    takes, expected = _TAKES[option.kind]
    if not takes(value):
        return expected
    if value is False and option.kind is OptionKind.FLAG and not option.negatable:
        return "true, or nothing at all: vLLM cannot be told the opposite"
    if isinstance(value, dict) and option.fields:
        return _unknown_key(option, value)
    return None


def _choices(option: Option, value: ArgumentValue) -> str:
    near = nearest(str(value), [str(choice) for choice in option.choices])
    return f"{near} (the nearest choice)" if near else "one of " + ", ".join(str(choice) for choice in option.choices)


def _unknown_key(option: Option, value: dict[str, ArgumentValue]) -> str | None:
    unknown = next((key for key in value if key not in option.fields), None)
    if unknown is None:
        return None
    near = nearest(unknown, option.fields)
    instead = f"{near}?" if near else "one of " + ", ".join(option.fields)
    return f"only keys that vLLM knows: {unknown} is none, did you mean {instead}"


def _is_number(value: ArgumentValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TAKES: dict[OptionKind, tuple[Callable[[ArgumentValue], bool], str]] = {
    # A model's name may be all digits; YAML then makes a number of it.
    OptionKind.TEXT: (lambda value: isinstance(value, str) or _is_number(value), "text"),
    OptionKind.FLAG: (lambda value: isinstance(value, bool), "true or false"),
    OptionKind.INTEGER: (lambda value: isinstance(value, int) and _is_number(value), "a whole number"),
    OptionKind.COUNT: (
        lambda value: read_count(value) is not None,
        "a whole number, or one such as 8k (8000) or 8K (8192)",
    ),
    OptionKind.LENGTH: (
        lambda value: value == AUTO or read_count(value) is not None,
        "a whole number, one such as 8k (8000) or 8K (8192), or auto",
    ),
    OptionKind.NUMBER: (_is_number, "a number"),
    OptionKind.JSON: (lambda value: isinstance(value, dict | list), "a mapping or a list"),
    OptionKind.OBJECT: (lambda value: isinstance(value, dict), "a mapping"),
    OptionKind.TEXT_OR_JSON: (lambda value: isinstance(value, str | dict), "text or a mapping"),
    OptionKind.TEXT_OR_FLAG: (lambda value: isinstance(value, str) or value is True, "text or true"),
}
"""What each kind takes, and in words."""


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
