"""vLLM's server with its engine core as a fork of it: `python -m tidegate_entrypoint.server.forked MODULE ARGUMENT...`.

On a CPU vLLM starts the core as another Python, which imports all of vLLM again: a third of the CPU time of a start.
On GPUs it forks, and so do we, for the one process that computes when `VLLM_ENABLE_V1_MULTIPROCESSING` is 0. Why it
does not fork on a CPU, and what we do instead:

- A fork has none of the threads with which OpenMP computed before, and waits for them forever. So the server computes
  with one thread, which starts no others, until its core is forked.
- Libraries are preloaded for another program only. So the server has them itself (`prepare`).
- What inductor reads when it is imported is set later. So an engine that compiles is started as vLLM does it.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing.context
import os
import runpy
import signal
import stat
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1

LOG = 2
"""The highest descriptor of standard input, output and error."""


class CoreProcess(multiprocessing.context.ForkProcess):
    """The engine core, as a fork."""

    threads = 1
    """With how many it computes, and the server once it is forked."""

    def start(self) -> None:
        """Fork; then this process is the server that it would have been."""
        super().start()
        _as_usual(self.threads)

    def run(self) -> None:
        """What vLLM has the core do, for as long as the server lives."""
        end_with_parent()
        leave_sockets()
        _as_usual(self.threads)
        super().run()


class ForkedCore(multiprocessing.context.ForkContext):
    """What vLLM takes for the module `multiprocessing`."""

    Process = CoreProcess


def main() -> None:
    """Become the server MODULE."""
    import torch

    CoreProcess.threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # What is imported stays: to look through it for garbage is a tenth of the time.
    gc.disable()
    from vllm.model_executor.models import registry
    from vllm.v1.engine import utils

    # In a process of its own, 8 s of imports: a GPU must not be touched before a fork. Here is none.
    registry._run_in_subprocess = lambda asked: asked()
    if hasattr(utils, "get_mp_context"):
        utils.get_mp_context = ForkedCore
    else:
        # This vLLM starts its core in some other way, which stays as it is.
        _as_usual(CoreProcess.threads)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _as_usual(threads: int) -> None:
    import torch

    gc.enable()
    torch.set_num_threads(threads)


def end_with_parent() -> None:
    """Get SIGKILL when the server ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    server = multiprocessing.parent_process()
    if server is not None and os.getppid() != server.pid:
        os._exit(1)


def leave_sockets() -> None:
    """Let go of the server's sockets: its port, and the channel to process 1, must end with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        try:
            # The log may be one, too.
            if descriptor > LOG and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                # Not closed: an object of the server may close the number once more, when it is another file's.
                os.dup2(nothing, descriptor, inheritable=False)
        except OSError:
            # Of the listing itself.
            continue
    os.close(nothing)


if __name__ == "__main__":
    main()
