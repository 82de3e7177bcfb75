"""What becomes of a bug of ours: one line for the person, the traceback in a file that holds no secret."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tidegate import __version__

USER_INFO = re.compile(r"(?<=://)[^/\s@'\"]*@")
"""Name and password of an address."""
SECRET_NAME = re.compile(r"(?i)token|secret|passw|credential|api_?key|access_?key")
"""Names of variables whose values nobody else may see."""
LEAST = 6
"""Characters of a value that is taken out; a shorter one would be a common word."""
LONGEST = 200
"""Characters of an error's own words in the one line."""


def keep(bug: Exception, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Path | None:
    """Write the traceback to a file that only this user can read; None when no file can be written."""
    head = (
        f"tidegate {__version__}, Python {platform.python_version()}, {platform.platform()},"
        f" {datetime.now(UTC):%F %T} UTC\n$ tidegate {shlex.join(arguments)}\n\n"
    )
    text = without_secrets(head + "".join(traceback.format_exception(bug)), environment)
    try:
        handle, name = tempfile.mkstemp(prefix="tidegate-crash-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        # The traceback must not be lost with the disk.
        print(text, file=sys.stderr)
        return None
    return Path(name)


def told(bug: Exception, kept: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The line for the person."""
    words = without_secrets(" ".join(str(bug).split()), environment)
    said = f"{type(bug).__name__}: {words}" if words else type(bug).__name__
    short = said if len(said) <= LONGEST else f"{said[: LONGEST - 4]} ..."
    return f"internal error, please report it: {short}; the traceback is {f'in {kept}' if kept else 'above'}"


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """The text without the users of addresses and the values of variables that are named as secrets are."""
    hidden = [value for name, value in environment.items() if SECRET_NAME.search(name) and len(value) >= LEAST]
    # The longest first: one may be a part of another.
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***")
    return USER_INFO.sub("***@", text)
