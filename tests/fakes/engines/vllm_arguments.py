"""Asks the installed vLLM what it makes of arguments, without loading a model; runs on the engine's own Python.

One JSON list of words a line comes in; one JSON value a line goes out: null, or what vLLM said against them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any


def refusal(parser: Any, words: list[str]) -> str | None:
    """What vLLM says against a command line, as far as it can before it loads the model."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
    from vllm.entrypoints.launchers.launcher import validate_api_server_args
    from vllm.usage.usage_lib import UsageContext

    try:
        args = parser.parse_args(words)
        validate_parsed_serve_args(args)
        validate_api_server_args(args)
        AsyncEngineArgs.from_cli_args(args).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (SystemExit, NotImplementedError, TypeError, ValueError, KeyError) as error:
        return str(error) or type(error).__name__
    return None


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = make_arg_parser(FlexibleArgumentParser())
        said = [refusal(parser, json.loads(line)) for line in sys.stdin]
    for answer in said:
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
