"""What runs as process 1 in an engine image: it proves the engine, starts vLLM as its child, and drains it.

The folder is copied into images as it is and runs on the Python of the engine environment: it imports nothing
of tidegate, only the standard library and what vLLM itself depends on. In an image it is the package
`tidegate_entrypoint` below `/engine/entrypoint`.

process 1   `serve`, which prepares (`manifest`, `weights`, `runtime_directory`, `compile_key`), then watches its child
vLLM        with `gate.EngineGate` as ASGI middleware: counts, readiness, health and draining without a proxy's hop
"""

import time

BEGAN = time.monotonic()
"""When process 1 began, but for Python's own start: what is imported is in what users wait for."""
