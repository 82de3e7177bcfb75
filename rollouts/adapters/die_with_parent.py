"""Runs a command that does not outlive its parent: `die_with_parent.py SIGNAL PARENT COMMAND...`.

A program of its own because what runs between fork and exec must not share a lock with the parent's
threads. It imports nothing of tidegate, so that it costs ten milliseconds.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Have the kernel send SIGNAL when the process PARENT ends, then become COMMAND."""
    signal, parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal))
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
