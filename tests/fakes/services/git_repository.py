"""A team's Git repository on this disk, with the real `git`, and what others do to it meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

OTHERS = ("-c", "user.name=Ann", "-c", "user.email=ann@team.example", "-c", "core.hooksPath=/dev/null")


class TeamRepository:
    """A bare repository, and a clone in which a person works."""

    def __init__(self, folder: Path, files: Mapping[str, str], *, branch: str = "main") -> None:
        """`files` are those of its first commit."""
        self.bare, self.branch = folder / "serving.git", branch
        self._clone = folder / "clone"
        self._git("init", "--quiet", "--bare", f"--initial-branch={branch}", str(self.bare))
        self._git("clone", "--quiet", str(self.bare), str(self._clone))
        self.person_writes(files, "how it is served")

    @property
    def url(self) -> str:
        return self.bare.as_uri()

    def person_writes(self, files: Mapping[str, str], message: str = "something else") -> str:
        """Somebody pushes; returns the commit."""
        if self.commits():
            self._work("pull", "--quiet", "--rebase", "--autostash", "origin", self.branch)
        for path, text in files.items():
            (self._clone / path).parent.mkdir(parents=True, exist_ok=True)
            (self._clone / path).write_bytes(text.encode())
        self._work("add", "--all")
        self._work("commit", "--quiet", "--message", message)
        self._work("push", "--quiet", "origin", f"HEAD:{self.branch}")
        return self.commits()[0]

    def text(self, path: str, branch: str = "") -> str:
        """A file as the branch has it."""
        return self._at("show", f"{branch or self.branch}:{path}")

    def commits(self, branch: str = "") -> list[str]:
        """Newest first; none before the first."""
        if (branch or self.branch) not in self.branches():
            return []
        return self._at("log", "--format=%H", branch or self.branch).split()

    def message(self, commit: str = "") -> str:
        return self._at("show", "--no-patch", "--format=%an <%ae>%n%B", commit or self.branch)

    def branches(self) -> list[str]:
        return self._at("for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def hook(self, name: str, script: str) -> None:
        """What the server runs, such as `pre-receive`, which may refuse a push."""
        path = self.bare / "hooks" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def _at(self, *arguments: str) -> str:
        return self._git("--git-dir", str(self.bare), *arguments)

    def _work(self, *arguments: str) -> str:
        return self._git("-C", str(self._clone), *arguments)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *OTHERS, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
