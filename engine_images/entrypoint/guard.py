"""Runs vLLM so that nothing of it outlives process 1: `guard.py PARENT COMMAND...`.

vLLM starts processes of its own, which stay when it or its parent is killed. The guard leads their process
group and kills it when PARENT is gone, however that ended. SIGTERM is handed on to vLLM alone, which tells
its own. It imports nothing but the standard library, and ends with vLLM's own exit code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the guard of COMMAND for as long as PARENT lives."""
    parent, *command = sys.argv[1:]
    child = os.fork()
    if child == 0:
        # Should the guard be killed alone, vLLM's first process ends with it.
        _tell_at_parents_end(signal.SIGKILL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.exit(f"{command[0]}: {error.strerror}")
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    # The terminal's: process 1 drains first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: os.killpg(0, signal.SIGKILL))
    _tell_at_parents_end(signal.SIGUSR1)
    # It may have ended before we asked to be told.
    if os.getppid() != int(parent):
        os.killpg(0, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    sys.exit(abs(os.waitstatus_to_exitcode(status)))


def _tell_at_parents_end(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


if __name__ == "__main__":
    main()
