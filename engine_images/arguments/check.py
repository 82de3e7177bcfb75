"""What is wrong with each argument, all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from engine_images.arguments.reserved import owner_of
from engine_images.arguments.values import complaint, nearest
from engine_images.pinned.model import PinnedVllm

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class WrongArgument:
    """One argument that vLLM, or tidegate, would not take."""

    name: str
    found: str
    expected: str


def wrong_arguments(args: Mapping[str, JsonValue], vllm: PinnedVllm | None) -> Iterator[WrongArgument]:
    """Every argument that is wrong; without a known vLLM only the names can be judged."""
    for name, value in args.items():
        wrong = _wrong_name(name) or (vllm and _not_of(vllm, name, value))
        if wrong:
            yield wrong


def _wrong_name(name: str) -> WrongArgument | None:
    key, _, inner = name.partition(".")
    if inner and _NAME.fullmatch(key):
        return WrongArgument(name, repr(name), f"a mapping: {key}: {{{inner.replace('.', ': {', 1)}: ...}}")
    if _NAME.fullmatch(name) is None:
        return WrongArgument(
            name, repr(name), "an argument as vLLM writes it, without the dashes in front: max-model-len"
        )
    owner = owner_of(name)
    if owner is None:
        return None
    return WrongArgument(
        name, repr(name), f"an argument of vLLM that tidegate does not set itself; this one follows from the {owner}"
    )


def _not_of(vllm: PinnedVllm, name: str, value: JsonValue) -> WrongArgument | None:
    option = vllm.options.get(name)
    if option is None:
        return WrongArgument(name, "an unknown argument", _did_you_mean(vllm, name))
    if option.deprecated:
        return WrongArgument(name, "a deprecated argument", "one that the next vLLM will know too")
    expected = complaint(option, value)
    return WrongArgument(name, repr(value), expected) if expected else None


def _did_you_mean(vllm: PinnedVllm, name: str) -> str:
    positive = name.removeprefix("no-")
    if positive != name and positive in vllm.options and vllm.options[positive].negatable:
        return f"{positive}: false"
    free = (option for option in vllm.options if owner_of(option) is None)
    near = nearest(name, free)
    return f"an argument of vLLM {vllm.vllm}" + (f": did you mean {near}?" if near else "")
