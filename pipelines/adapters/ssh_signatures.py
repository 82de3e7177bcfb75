"""SSH signatures of statements, made and checked by OpenSSH's own `ssh-keygen -Y`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.identity.model import Unproven
from tidegate.core.errors import OutsideError, UsageError

NAMESPACE = "tidegate"
"""A signature for anything else, such as a Git commit, counts for nothing here, and ours for nothing there."""
ENOUGH_SECONDS = 10
"""A key in a token that must be touched takes a person; checking takes milliseconds."""
TOUCH_SECONDS = 120
_GOOD = re.compile(r"key (SHA256:\S+)")
_PATTERN = frozenset("*?!")


@dataclass(frozen=True)
class Signer:
    """Whose key it was."""

    principal: str
    fingerprint: str


def sign(statement: str, key: Path) -> str:
    """The armored signature over the statement, by a private key, or by an agent that has it when `key` is public.

    Raises:
        UsageError: there is no such key, or it could not be used.
    """
    if not key.exists():
        raise UsageError(f"{key}: there is no such key", hint="name a private key, or the public one of an agent's")
    # Its standard streams stay a person's: it may ask for a passphrase, which goes over the terminal.
    ended = _ssh_keygen(["sign", "-n", NAMESPACE, "-f", str(key)], statement, TOUCH_SECONDS)
    if ended.returncode != 0:
        raise UsageError(f"{key}: ssh-keygen did not sign: {_last_line(ended.stderr)}")
    return ended.stdout


def signer_of(statement: str, signature: str, allowed: Path, at: datetime) -> Signer:
    """Whose signature it is, by the file of allowed signers as it was valid at that time.

    A key that stands under several names is one person, the first of them.

    Raises:
        Unproven: nobody's whom the file allows then, or of another text, or for something else than tidegate.
        OutsideError: the file or ssh-keygen is not there.
    """
    if not os.access(allowed, os.R_OK):
        raise OutsideError(f"{allowed}: the file of allowed signers cannot be read")
    time = f"-Overify-time={at.astimezone(UTC):%Y%m%d%H%M%S}"
    with TemporaryDirectory(prefix="tidegate-") as folder:
        file = Path(folder) / "statement.sig"
        file.write_text(signature, encoding="utf-8")
        named = _ssh_keygen(["find-principals", "-s", str(file), "-f", str(allowed), time])
        principal = next(iter(named.stdout.split()), "")
        if named.returncode != 0 or not principal:
            raise Unproven(f"no key of {allowed.name} made the signature: {_why(named)}")
        if _PATTERN & set(principal):
            raise Unproven(f"{allowed.name} has the pattern {principal} for that key, which names nobody")
        words = ["verify", "-f", str(allowed), "-I", principal, "-n", NAMESPACE, "-s", str(file), time]
        checked = _ssh_keygen(words, statement)
    good = _GOOD.search(checked.stdout)
    if checked.returncode != 0 or good is None:
        raise Unproven(f"the signature is not that of {principal} on this statement: {_why(checked)}")
    return Signer(principal, good[1])


def _ssh_keygen(
    words: Sequence[str], text: str = "", seconds: float = ENOUGH_SECONDS
) -> subprocess.CompletedProcess[str]:
    # Times in the file of signers are those of the machine's zone unless they say Z; UTC is the same on every one.
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *words],
            input=text,
            text=True,
            capture_output=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise OutsideError("ssh-keygen is not installed here", hint="install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise OutsideError(f"ssh-keygen said nothing for {seconds:g} s") from None


def _why(ended: subprocess.CompletedProcess[str]) -> str:
    """Its own reason, without the place of the file: the first line says it, the others that it failed."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return re.sub(r"^.*?:\d+: ", "", lines[0]) if lines else "no principal matched"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
