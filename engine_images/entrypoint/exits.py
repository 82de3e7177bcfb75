"""How an engine can end, each with its exit code.

0   told to end, and every open answer was finished
1   a bug of ours, with its traceback
2   BadSettings        an option, or the manifest, cannot be read
3   NotAsBuilt         a file or the signature is not what the manifest or the key says
4   OutsideMissing     the artifact store, the disk or the port
5   OtherMachine       the compile key differs from this machine's, and the policy is to refuse
6   DidNotStart        vLLM died, or was not ready in time, or did not answer its warm-up
7   Died               vLLM ended while it served
8   told to end, but answers were still open at the end of the grace period and got an error
"""

from __future__ import annotations

ENDED = 0
CUT = 8


class Exit(Exception):
    """The engine ends; the message is one line that says why."""

    code = 1


class BadSettings(Exit):
    """An option, or the manifest, cannot be read."""

    code = 2


class NotAsBuilt(Exit):
    """A file or the signature is not what the manifest or the key says."""

    code = 3


class OutsideMissing(Exit):
    """The artifact store, the disk or the port."""

    code = 4


class OtherMachine(Exit):
    """The compile key differs from this machine's, and the policy is to refuse."""

    code = 5


class DidNotStart(Exit):
    """vLLM died, or was not ready in time, or did not answer its warm-up."""

    code = 6


class Died(Exit):
    """vLLM ended while it served."""

    code = 7
