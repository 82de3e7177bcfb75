"""Runs a command whose whole family ends with our parent: `guard.py SIGNAL PARENT COMMAND...`.

A program that starts programs (vLLM has an engine core and workers) leaves them behind when it is killed. The
guard leads the process group, so that nobody in it outlives the command, nor the process PARENT. SIGTERM is
handed on. It imports nothing of tidegate, so that it costs ten milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the guard of COMMAND, which gets SIGNAL when PARENT ends; SIGKILL goes to its whole group."""
    ending, parent, *command = sys.argv[1:]
    child = os.fork()
    if child == 0:
        _become(command)

    def hand_on(*_: object) -> None:
        os.kill(child, signal.SIGTERM)

    def orphaned(*_: object) -> None:
        if int(ending) == signal.SIGKILL:
            os.killpg(0, signal.SIGKILL)
        hand_on()

    signal.signal(signal.SIGTERM, hand_on)
    # Not SIGTERM: a person who stops the guard and a parent that is gone are two things.
    signal.signal(signal.SIGUSR1, orphaned)
    _when_parent_ends(signal.SIGUSR1)
    # The parent may have ended before we asked to be told.
    if os.getppid() != int(parent):
        orphaned()
    # The command has ended by itself; what it started has not.
    os.waitpid(child, 0)
    os.killpg(0, signal.SIGKILL)


def _become(command: list[str]) -> None:
    """The command itself; should the guard be killed, at least this one ends too."""
    _when_parent_ends(signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def _when_parent_ends(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


if __name__ == "__main__":
    main()
