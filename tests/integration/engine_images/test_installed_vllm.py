"""What is kept about the pinned vLLM, against the vLLM that is installed."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files

import pytest

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.installed_vllm import describe_installed
from engine_images.arguments.command_line import command_line
from engine_images.arguments.model import Arguments
from engine_images.pinned.catalogue import pinned_vllm

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


@pytest.mark.timeout(180)
def test_what_is_kept_is_what_the_installed_vllm_says() -> None:
    environment = find_engine_environment()
    kept = files("engine_images.pinned") / f"vllm-{environment.vllm}.json"
    assert describe_installed(environment) == kept.read_text(encoding="utf-8"), "run: make pin-vllm"


@pytest.mark.timeout(180)
def test_vllm_reads_the_arguments_as_the_spec_meant_them() -> None:
    environment = find_engine_environment()
    words = command_line(ARGS, pinned_vllm(environment.vllm))
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
