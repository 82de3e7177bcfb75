"""vLLM's own benchmark client, `vllm bench serve`, in the engine environment.

Its command reads the metadata of a distribution named `vllm`, which the build for CPUs has not.
"""

import argparse

from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
