"""A page of the docs as a script: its console blocks are typed in their order, its YAML goes into the files it names.

What a page says differs from a test cluster in addresses and names alone; a table says which. Lines that the page
shows as output have to come, `...` standing for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from e2e.machine import TIDEGATE
from fakes.waiting import PATIENCE_SECONDS

_FENCE = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INTO = re.compile(r"^# (\S+\.yaml)\b")
"""The first line of a block that is to be merged into a file."""


@dataclass(frozen=True)
class Typed:
    """One command of the page, and what the page shows of its answer."""

    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Merged:
    """Keys that go into a file, in place of what is there."""

    file: str
    keys: Mapping[str, Any]


Step = Typed | Merged


def steps_of(text: str) -> Iterator[Step]:
    """What a reader of the page does, in the page's order. YAML that names no file is there to be read."""
    for kind, body in _FENCE.findall(text):
        if kind == "console":
            yield from _typed(body)
        elif into := _INTO.match(body):
            yield Merged(into[1], yaml.safe_load(body))


def _typed(body: str) -> Iterator[Typed]:
    for entry in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = entry.replace("\\\n", "").partition("\n")
        yield Typed(command.strip(), tuple(shown.splitlines()))


@dataclass
class Reader:
    """Somebody who follows a page in a folder of their own, in one shell."""

    folder: Path
    places: Mapping[str, str]
    """What the page calls something, and what it is called here."""
    environment: Mapping[str, str]
    told: list[str] = field(default_factory=list)
    """All that the shell has shown."""
    _shell: subprocess.Popen[str] | None = None

    def follow(self, steps: Sequence[Step]) -> None:
        """Do all of it.

        Raises:
            AssertionError: a command failed where the page does not look at its exit code, or showed something else.
        """
        path = os.pathsep.join([str(Path(TIDEGATE).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.folder, env={**os.environ, **self.environment, "PATH": path},
        )  # fmt: skip
        try:
            for step, after in zip(steps, [*steps[1:], None], strict=True):
                if isinstance(step, Merged):
                    self._merge(step)
                else:
                    self._type(step, asked_for_code=isinstance(after, Typed) and after.command == "echo $?")
        finally:
            self._shell.kill()
            self._shell.communicate()

    def here(self, text: str) -> str:
        """The page's text with the names of this place; the longest that fits counts, and what it becomes stays."""
        longest_first = "|".join(re.escape(said) for said in sorted(self.places, key=len, reverse=True))
        return re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", lambda found: self.places[found[0]], text)

    def _merge(self, step: Merged) -> None:
        path = self.folder / step.file
        there = yaml.safe_load(path.read_text(encoding="utf-8"))
        keys = yaml.safe_load(self.here(yaml.safe_dump(dict(step.keys), sort_keys=False)))
        path.write_text(yaml.safe_dump(merged(there, keys), sort_keys=False), encoding="utf-8")

    def _type(self, step: Typed, *, asked_for_code: bool) -> None:
        command, begun = self.here(step.command), time.monotonic()
        code, said = self._answer(command)
        self.told.append(f"$ {command}\n{said}[{code}, {time.monotonic() - begun:.1f} s]")
        print(self.told[-1], flush=True)
        assert asked_for_code or code == 0, f"{command}: exit {code}\n{said}"
        for line in step.shown:
            wanted = self.here(line.strip())
            assert shows(said, wanted), f"{command}: the page shows {wanted!r}; it said\n{said}"

    def _answer(self, command: str) -> tuple[int, str]:
        """What the shell shows, and the exit code, which the next command may ask for."""
        shell, end = self._shell, f"end-{os.urandom(6).hex()}"
        assert shell and shell.stdin and shell.stdout
        # In a subshell nothing would be exported; the last words keep `$?` for a command that asks for it.
        shell.stdin.write(f"{{ {command}\n}} </dev/null; _code=$?; printf '\\n%s %s\\n' {end} $_code; (exit $_code)\n")
        shell.stdin.flush()
        lines, deadline = [], time.monotonic() + PATIENCE_SECONDS
        for line in shell.stdout:
            assert time.monotonic() < deadline, f"{command}: goes on after {PATIENCE_SECONDS} s"
            if line.startswith(end):
                return int(line.split()[1]), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"{command}: the shell ended\n{''.join(lines)}")


def merged(there: Any, keys: Any) -> Any:
    """A mapping's keys go into the mapping that is there; everything else replaces it."""
    if not isinstance(there, dict) or not isinstance(keys, dict):
        return keys
    return {**there, **{key: merged(there.get(key), value) for key, value in keys.items()}}


def shows(said: str, wanted: str) -> bool:
    """Whether a line of it is the page's, in which `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
    return any(re.fullmatch(pattern, line.strip()) for line in said.splitlines()) or not wanted.strip(". ")
