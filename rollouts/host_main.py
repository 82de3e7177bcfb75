"""`python -P -m rollouts.host_main STATE REGION[=PORT]...`: the fleet host as a process."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from rollouts.adapters.files import replace_json
from rollouts.errors import FleetError
from rollouts.host import serve
from rollouts.layout import Layout
from rollouts.wire import pack
from tidegate.core.errors import ExitCode, TidegateError


def main(arguments: list[str]) -> int:
    """Serve until told to stop; leave the reason behind for whoever started us when that fails."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # One line for each look at an engine's health would bury everything else.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    state, *regions = arguments
    try:
        asyncio.run(serve(Path(state), dict(map(_region, regions))))
    except TidegateError as error:
        replace_json(Layout(Path(state)).failure, pack(error))
        return error.exit_code
    # Whoever started us reads the reason there; the traceback is in the host's log.
    except Exception as bug:
        logging.getLogger(__name__).exception("the fleet host ends by a bug in tidegate")
        told = FleetError(
            f"internal error of the fleet host: {type(bug).__name__}", hint="see its log; please report it"
        )
        replace_json(Layout(Path(state)).failure, pack(told))
        return ExitCode.INTERNAL
    return ExitCode.DELIVERED


def _region(text: str) -> tuple[str, int | None]:
    name, _, port = text.partition("=")
    return name, int(port) if port else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
