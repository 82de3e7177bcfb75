"""What a command is told by the options that all of them take, and how it prints: data on stdout, in the form that
`-o` says, and words for people on stderr.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from tidegate.core.errors import Refused
from tidegate.core.text import one_line

STATE_VARIABLE = "TIDEGATE_STATE"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
OTHERS = 0o077
"""What group and others may do."""
ROOT = 0
"""Whose folders may be used too: a volume of a container is root's, and root may do anything anyway."""
Data = Mapping[str, object] | Sequence[object]


class Output(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """The name of each thing, one a line, for `xargs` and loops."""
    MARKDOWN = "markdown"
    """The comment under a merge request."""
    JUNIT = "junit"

    @property
    def is_data(self) -> bool:
        """Whether a program reads it."""
        return self in (Output.JSON, Output.YAML)


@dataclass
class Settings:
    """What was said of one command, and what the environment says where nothing was."""

    quiet: bool = False
    output: Output = Output.TEXT
    context: str | None = None
    """Of the kubeconfig; None for its current one, or the cluster of this pod."""
    state_folder: Path = field(default_factory=lambda: Path(os.environ.get(STATE_VARIABLE) or ".tidegate"))
    tracking_uri: str | None = field(default_factory=lambda: os.environ.get(TRACKING_VARIABLE) or None)
    """Of MLflow; None for the store in the state folder."""

    @property
    def state(self) -> Path:
        """The folder of this machine's state, closed to others.

        Raises:
            Refused: it is another user's.
        """
        return kept_private(self.state_folder)

    def note(self, line: str) -> None:
        """A line on stderr for the person who waits."""
        # A terminal that is gone, or a full disk: what is being done goes on, users' way back first of all.
        with suppress(OSError):
            if not self.quiet:
                print(one_line(line), file=sys.stderr, flush=True)

    def show(self, data: Data, *lines: str, names: Iterable[str] = ()) -> None:
        """Print a result on stdout: `data` for programs, `names` for `-o name`, else `lines`."""
        if self.output.is_data:
            print_data(data, self.output)
        else:
            say(*(names if self.output is Output.NAME else lines))


_SETTINGS: ContextVar[Settings] = ContextVar("settings")


@contextmanager
def settings() -> Iterator[Settings]:
    """Those of one command, which its options change while they are read."""
    token = _SETTINGS.set(Settings())
    try:
        yield _SETTINGS.get()
    finally:
        _SETTINGS.reset(token)


def given() -> Settings:
    """What was said of the command that runs."""
    return _SETTINGS.get(None) or Settings()


def kept_private(state: Path) -> Path:
    """`state`, closed to others if it is there; whatever this process makes from now on is closed to them too.

    Raises:
        Refused: it is another user's, who could change what is read there.
    """
    os.umask(OTHERS)
    try:
        found = state.stat()
    except OSError:
        # Not there yet, or not readable: who uses it makes it, or says why not.
        return state
    if stat.S_ISDIR(found.st_mode):
        require_own(state, found.st_uid, os.geteuid())
        if found.st_uid == os.geteuid() and found.st_mode & OTHERS:
            state.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    return state


def require_own(state: Path, owner: int, user: int) -> None:
    """Raise Refused when another user than `user` may change what is below `state`."""
    if owner not in (user, ROOT):
        raise Refused(
            f"the state folder {state} belongs to user {owner}, who could change what is read there",
            hint="name one of your own: --state",
        )


Made = TypeVar("Made", bound=Callable[..., int])


def prints(*formats: Output) -> Callable[[Made], Made]:
    """The command prints its result as text, or in one of these formats; another is refused before it begins."""

    def mark(command: Made) -> Made:
        command.formats = (Output.TEXT, *formats)  # type: ignore[attr-defined]
        return command

    return mark


def print_data(data: Data, output: Output) -> None:
    """One document on stdout: YAML where that is asked for, else JSON."""
    text = json.dumps(data, indent=2, default=str)
    if output is Output.YAML:
        from tidegate.core.yaml_text import yaml_text

        # By way of JSON, so that both say the same.
        text = yaml_text(json.loads(text)).removesuffix("\n")
    print(text)


def print_objects(objects: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Kubernetes objects: YAML documents for `kubectl apply`, their names as kubectl writes them, or JSON."""
    from tidegate.core.yaml_text import yaml_text

    if output is Output.JSON:
        print_data(objects, output)
    elif output is Output.NAME:
        for each in objects:
            group, kind = each["apiVersion"].rpartition("/")[0], each["kind"].lower()
            say(f"{kind}.{group}/{each['metadata']['name']}" if group else f"{kind}/{each['metadata']['name']}")
    else:
        print("".join(f"---\n{yaml_text(each)}" for each in objects), end="")


def say(*lines: str) -> None:
    """Lines on stdout that hold words of others."""
    for line in lines:
        print(one_line(line), flush=True)
