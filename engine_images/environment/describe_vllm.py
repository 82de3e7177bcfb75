"""Print what the vLLM of this Python accepts, as JSON: its options, architectures and quantization methods.

Runs on the engine environment's Python, which has no tidegate: `make pin-vllm` keeps what it prints in
`engine_images/arguments/`, so that a spec can be judged where no vLLM is. With `--cuda-against FILE` a vLLM for CUDA
is described, also where no GPU is, and only the options that differ from the file's are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

KINDS = {
    "int": "integer",
    "human_readable_int": "count",
    "human_readable_int_or_auto": "length",
    "float": "number",
    "loads": "json",
    "union_dict_and_str": "text_or_json",
}
"""What vLLM's functions that read a value mean; whatever is not listed is text."""

PURPOSES = {
    "_TEXT_GENERATION_MODELS": "generate",
    "_MULTIMODAL_MODELS": "generate",
    "_TRANSFORMERS_SUPPORTED_MODELS": "generate",
    "_TRANSFORMERS_BACKEND_MODELS": "generate",
    "_SPECULATIVE_DECODING_MODELS": "draft",
    "_EMBEDDING_MODELS": "pool",
    "_LATE_INTERACTION_MODELS": "pool",
    "_REWARD_MODELS": "pool",
    "_TOKEN_CLASSIFICATION_MODELS": "pool",
    "_SEQUENCE_CLASSIFICATION_MODELS": "pool",
}
"""vLLM's own tables of architectures, the ones that answer prompts first: some stand in several."""


def options() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every option of the server with what it takes."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    for action in parser._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        if names and not isinstance(action, argparse._HelpAction):
            yield names[0], dict(_facts(action, names, deprecated=action in parser._deprecated))


def _facts(action: argparse.Action, names: list[str], *, deprecated: bool) -> Iterator[tuple[str, Any]]:
    """Only what differs from the plainest option: text, once, of any value."""
    fields = _fields(action)
    kind = "object" if fields else _kind(action)
    if kind != "text":
        yield "kind", kind
    if any(name.startswith("no-") for name in names):
        yield "negatable", True
    if action.choices:
        yield "choices", sorted(choice for choice in action.choices if choice is not None)
    if action.nargs == "+" or isinstance(action, argparse._AppendAction):
        yield "many", True
    if isinstance(action, argparse._AppendAction):
        yield "repeated", True
    if isinstance(action.default, bool | int | float | str) and action.default != argparse.SUPPRESS:
        yield "default", getattr(action.default, "value", action.default)
    if deprecated or "Deprecated" in type(action).__name__:
        yield "deprecated", True
    if fields:
        yield "fields", fields


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "flag"
    if action.nargs == "?" and action.const is True:
        return "text_or_flag"
    if type(action).__name__ == "LoRAParserAction":
        return "text_or_json"
    return KINDS.get(_reader(action.type), "text")


def _fields(action: argparse.Action) -> list[str]:
    """The keys of an option that is a configuration of its own; vLLM refuses any other."""
    from vllm.config import SpeculativeConfig

    # It is read as any mapping, and becomes this class later.
    classes = {"speculative_config": SpeculativeConfig}
    kind = classes.get(action.dest)
    if _reader(action.type) == "parse_dataclass":  # vLLM's closure around each configuration
        kind = inspect.signature(_unwrapped(action.type)).parameters["cls"].default
    return sorted(field.name for field in dataclasses.fields(kind) if field.init) if kind else []


def _reader(function: Any) -> str:
    """The name of what reads the value."""
    return getattr(_unwrapped(function), "__name__", "")


def _unwrapped(function: Any) -> Any:
    """Without the wrappers for optional values and for errors."""
    has_closure = getattr(function, "__closure__", None)
    inner = inspect.getclosurevars(function).nonlocals.get("return_type") if has_closure else None
    return _unwrapped(inner) if inner else function


def architectures() -> dict[str, str]:
    """What each architecture is for."""
    from vllm.model_executor.models import registry

    found: dict[str, str] = {}
    for table, purpose in PURPOSES.items():
        for name in getattr(registry, table):
            found.setdefault(name, purpose)
    unsorted = set(registry.ModelRegistry.get_supported_archs()) - found.keys()
    if unsorted:
        raise SystemExit(f"vLLM has architectures in a table that is not known here: {sorted(unsorted)}")
    return found


def pretend_cuda() -> None:
    """Let vLLM read its options as on a machine with a GPU, without the driver that its own platform loads."""
    from vllm import platforms
    from vllm.platforms.interface import Platform, PlatformEnum

    class Bare(Platform):  # type: ignore[misc]
        _enum = PlatformEnum.CUDA
        device_name = device_type = "cuda"
        dispatch_key = "CUDA"

    platforms._current_platform = Bare()


def main(arguments: Sequence[str]) -> None:
    """Print one line for each option and each architecture, so that two versions of vLLM can be compared."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda-against", type=Path, metavar="FILE")
    against = parser.parse_args(arguments).cuda_against
    # vLLM greets on stdout.
    with contextlib.redirect_stdout(sys.stderr):
        if against:
            pretend_cuda()
            known = json.loads(against.read_text(encoding="utf-8"))["options"]
            text = _lines({name: facts for name, facts in options() if facts != known.get(name)})
        else:
            parts = (f"{json.dumps(name)}: {_lines(value)}" for name, value in _everything().items())
            text = "{\n" + ",\n".join(parts) + "\n}"
    print(text)


def _everything() -> dict[str, Any]:
    from vllm.model_executor.layers.quantization import DEPRECATED_QUANTIZATION_METHODS, QUANTIZATION_METHODS
    from vllm.model_executor.models.registry import _PREVIOUSLY_SUPPORTED_MODELS
    from vllm.version import __version__

    return {
        "vllm": __version__.split("+")[0],
        "options": dict(sorted(options())),
        "architectures": dict(sorted(architectures().items())),
        "removed_architectures": dict(sorted(_PREVIOUSLY_SUPPORTED_MODELS.items())),
        "quantization": sorted(set(QUANTIZATION_METHODS) - set(DEPRECATED_QUANTIZATION_METHODS)),
    }


def _lines(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:])
