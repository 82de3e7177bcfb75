"""What is kept about the pinned vLLM, against the vLLM that is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from fakes.engines import vllm_arguments

from engine_images.adapters.environment import find_engine_environment
from engine_images.arguments.validation import ALLOWED, OTHER_NAMES, RESERVED
from engine_images.arguments.values import KIND_OF, REPEATED, SEVERAL, Arguments, command_line
from engine_images.entrypoint import compile_key
from engine_images.launch import ENVIRONMENT
from tidegate.testing import write_tiny_model

ASK = Path(vllm_arguments.__file__)

ARGS: Arguments = {
    "max-model-len": "8K",
    "dtype": "float32",
    "enable-prefix-caching": False,
    "enable-lora": True,
    "lora-modules": [{"name": "sql", "path": "model/sql"}, "law=model/law"],
    "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
    "compilation-config": {"cudagraph_capture_sizes": [1, 2]},
    "allowed-origins": ["https://example.org"],
    "middleware": ["one.two", "three.four"],
    "kv-cache-memory-bytes": "128m",
    "override-generation-config": {"temperature": 0.5},
}
"""One of each kind, as a spec has them."""

PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
args = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
print(json.dumps({
    "max_model_len": args.max_model_len,
    "enable_prefix_caching": args.enable_prefix_caching,
    "lora": [[module.name, module.path] for module in args.lora_modules],
    "speculative_config": args.speculative_config,
    "captured": args.compilation_config.cudagraph_capture_sizes,
    "allowed_origins": args.allowed_origins,
    "middleware": args.middleware,
    "kv_cache_memory_bytes": args.kv_cache_memory_bytes,
    "override_generation_config": args.override_generation_config,
}))
"""


OPTIONS = """
import contextlib, inspect, json, sys
with contextlib.redirect_stdout(sys.stderr):
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    actions = make_arg_parser(FlexibleArgumentParser())._actions
def reads_numbers(kind):
    inner = inspect.getclosurevars(kind).nonlocals.get("return_type") if getattr(kind, "__closure__", None) else None
    return reads_numbers(inner) if inner else getattr(kind, "__name__", "").removesuffix("_or_auto") in NUMBERS
NUMBERS = ("int", "float", "human_readable_int")
print(json.dumps({
    name[2:]: [
        action.option_strings[0][2:], "append" if "Append" in type(action).__name__ else action.nargs,
        action.nargs == 0 or bool(action.choices) or reads_numbers(action.type),
    ]
    for action in actions for name in action.option_strings if name.startswith("--")
}))
"""
LOOKED_UP = {
    *("quantization", "optimization-level", "attention-backend", "tool-call-parser", "reasoning-parser"),
    "load-format",
}
"""Texts that vLLM looks up among its own names (`IMPORTED_BY_NOBODY`). The last is tidegate's own choice."""


@pytest.mark.long
def test_what_is_said_of_arguments_is_true_of_the_installed_vllm() -> None:
    python = find_engine_environment().python
    done = subprocess.run([python, "-c", OPTIONS], capture_output=True, text=True, check=True)
    options = {name: said for name, said in json.loads(done.stdout).items() if name != "help"}
    reserved = {name for names in RESERVED.values() for name in names} - {"model-tag"}
    allowed = {re.split(r"[.:]", entry)[0] for entry in ALLOWED}
    assert (reserved | allowed | KIND_OF.keys() | SEVERAL | REPEATED) - options.keys() == set()
    others = {name: main for name, (main, *_) in options.items() if name not in {main, f"no-{main}"}}
    assert others == OTHER_NAMES
    assert {name for name, (_, nargs, _) in options.items() if nargs == "+"} - reserved == SEVERAL
    assert {name for name, (_, nargs, _) in options.items() if nargs == "append"} == REPEATED
    beginnings = {(name, one) for name in options for one in reserved | KIND_OF.keys() if one.startswith(name)}
    assert {name for name, one in beginnings if name != one} <= reserved | KIND_OF.keys()
    # A number, a flag or a choice names no path, address, module or command.
    whole = {entry for entry in ALLOWED if "." not in entry and ":" not in entry}
    assert {name for name in whole if not options[name][2]} == LOOKED_UP


MODULE = "evil.module.Thing"
IMPORTED_BY_NOBODY: list[Arguments] = [
    {"attention-backend": MODULE},
    {"quantization": MODULE},
    {"optimization-level": MODULE},
    {"enable-auto-tool-choice": True, "tool-call-parser": MODULE},
    {"reasoning-parser": MODULE},
    {"quantization-config": {"linear": MODULE}},
    {"quantization-config": {"moe": MODULE}},
    {"quantization-config": {"targets": {"a": MODULE}}},
    {"compilation-config": {"mode": MODULE}},
    {"compilation-config": {"cudagraph_mode": MODULE}},
    {"structured-outputs-config": {"backend": MODULE}},
]
"""Every argument, and key of one, that a spec may set by itself and whose value is text without choices: vLLM looks it
up among its own names."""


def ask(model: Path, lines: list[Arguments]) -> list[str | None]:
    """What the installed vLLM says against each, before it loads anything."""
    environment = find_engine_environment()
    words = [json.dumps(["--model", str(model), *command_line(args)]) for args in lines]
    done = subprocess.run(
        [environment.python, str(ASK)],
        input="\n".join(words),
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_vllm_reads_the_arguments_as_the_spec_meant_them() -> None:
    environment = find_engine_environment()
    words = command_line(ARGS)
    done = subprocess.run([environment.python, "-c", PARSE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "max_model_len": 8192,
        "enable_prefix_caching": False,
        "lora": [["sql", "model/sql"], ["law", "model/law"]],
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "captured": [1, 2],
        "allowed_origins": ["https://example.org"],
        "middleware": ["one.two", "three.four"],
        "kv_cache_memory_bytes": 128_000_000,
        "override_generation_config": {"temperature": 0.5},
    }


@pytest.mark.long
def test_no_text_that_a_spec_may_set_by_itself_is_imported(tmp_path: Path) -> None:
    names = ask(write_tiny_model(tmp_path), IMPORTED_BY_NOBODY)
    assert None not in names
    assert "No module" not in str(names)


def test_the_variables_that_vllm_leaves_out_of_its_key_are_read_off_it() -> None:
    environment = find_engine_environment()
    code = "import compile_key; print(*compile_key.neutral_variables())"
    folder = Path(compile_key.__file__).parent
    done = subprocess.run([environment.python, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    every_engines = {each for each in ENVIRONMENT if each.startswith("VLLM_")}
    assert {"VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "VLLM_FORCE_AOT_LOAD", *every_engines} <= found
    assert not {"VLLM_PLUGINS", "VLLM_CPU_OMP_THREADS_BIND"} & found
