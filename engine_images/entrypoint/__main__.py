"""Start, drain or describe an engine.

In an image (and on a machine, with `--root` and `--run` of its own), on the engine environment's Python:

    PYTHONPATH=/engine/entrypoint PYTHONSAFEPATH=1 python -m tidegate_entrypoint serve \
        --root /engine --host 0.0.0.0 --port 8000 --run /tmp/tidegate-engine --weights-cache /var/cache/tidegate

`/engine/entrypoint/tidegate_entrypoint` is a copy of this folder; `/engine/manifest.json` says what is served.
The engine is ready when `GET /tidegate/ready` is 200: before, it answers requests with 503. SIGTERM drains and
ends it; `drain` (a preStop hook) drains it and waits, without ending it; a second SIGTERM cuts what is open.

    serve    verify, place, tune, start vLLM, watch it: the process to start
    pull     bring the weights that the image has not, proven, and end: for an init container
    drain    tell the `serve` of the same `--run` to drain, and wait until no answer is open
    key      print the factors of the compile key of this machine for the engine at `--root`, as JSON

`serve --help` names every option. Exit codes are in `exits`. vLLM's own arguments come from the manifest; what
stands behind `--` is added to them.
"""

from __future__ import annotations

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
