"""A Git repository by the machine's own `git`: its credential helpers, ssh keys and agents are those of a team.

Nothing is checked out: commits are made from objects, so no filter, hook or attribute of a repository runs here.
Secrets go by the child's environment, never by arguments or addresses.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import weakref
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from threading import RLock
from typing import NoReturn
from urllib.parse import urlsplit

from pipelines.spec.git import AuthorSpec, GitSpec
from tidegate.core.access import SecretStore, scrubbed
from tidegate.core.children import Child, variables_for
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, Refused, UsageError, without_credentials
from tidegate.core.text import redacted

log = logging.getLogger(__name__)


class GitAway(OutsideError):
    """The repository's host did not answer; it may later."""


class GitRefused(OutsideError):
    """The repository does not let us in, or does not take the commit; the message has its own words."""


class GitMissing(Refused):
    """There is no `git` on this machine."""


class BranchMoved(OutsideError):
    """Somebody else has pushed since it was read; nothing was written."""


CALL_SECONDS = 60.0
"""For one command; what takes longer is a host that hangs."""
NO_SUCH_BRANCH = 2
"""How `git ls-remote --exit-code` ends then."""
_MOVED = re.compile(
    r"fetch first|non-fast-forward|stale info|cannot lock ref|failed to update ref|incorrect old value|already exists"
)
"""Reasons of a push that somebody else was faster with, as git and its servers say them."""
_REFUSED = re.compile(
    r"authentication failed|permission denied|could not read (username|password)|not found|access denied|"
    r"does not appear to be a git repository|host key verification failed|error: 40[134]|certificate|"
    r"unable to find remote helper|not allowed|dubious ownership|repository .* is not|invalid credentials",
    re.IGNORECASE,
)
"""What does not pass by waiting; anything else of a connection may."""


class GitRemote:
    """One branch of a remote repository, with a folder of its own that goes with this object."""

    def __init__(
        self, spec: GitSpec, clock: Clock, *, secrets: SecretStore | None = None, program: str = "git"
    ) -> None:
        """Asks nobody, and reads no secret yet."""
        self._spec, self._clock, self._program = spec, clock, program
        self._secrets = secrets or SecretStore()
        self._place: Path | None = None
        self._used: set[str] = set()
        self._tip = ""
        # A delivery that is stopped leaves a call behind; what comes after it waits for its end.
        self._lock = RLock()

    def write(self, files: Mapping[str, str], message: str, *, dry_run: bool = False) -> str:
        """Have the branch say this, by one commit on its tip; returns a commit that does. May take as long as its host.

        Args:
            files: whole texts by path; where all of them are there already nothing is committed.
            message: of the commit.
            dry_run: everything but the push's effect.

        Raises:
            BranchMoved: somebody else has pushed meanwhile; nothing was written.
            GitAway: the host does not answer.
            GitRefused: it does not let us in, or does not take the commit.
            UsageError: there is no such branch.
        """
        with self._lock:
            tip = self._fetched()
            new = self._committed(tip, files, message)
            if new != tip:
                # Never forced: a branch that has moved is read again.
                dry = ["--dry-run"] if dry_run else []
                self._push([*dry, "--porcelain", "origin", f"{new}:{self._branch}"])
            return new

    @property
    def _branch(self) -> str:
        return f"refs/heads/{self._spec.branch}"

    def _fetched(self) -> str:
        """The branch's newest commit, brought here."""
        done = self._run(["ls-remote", "--exit-code", "origin", self._branch], remote=True)
        if done.returncode == NO_SUCH_BRANCH:
            raise UsageError(f"{self._named} has no branch {self._spec.branch}", hint="name one: git.branch")
        if done.returncode:
            self._fail(done)
        tip = done.stdout.decode().split("\t")[0]
        if tip == self._tip:
            return tip
        wanted = ["--quiet", "--no-tags", "--depth=1", "origin", f"+{self._branch}:{_HERE}"]
        done = self._run(["fetch", *wanted], remote=True)
        if done.returncode:
            self._fail(done)
        self._tip = self._git("rev-parse", _HERE).strip()
        return self._tip

    def _committed(self, tip: str, files: Mapping[str, str], message: str) -> str:
        """The commit's id, of which nobody but us knows yet; the tip's where it says all of it."""
        index = self._folder / "index"
        index.unlink(missing_ok=True)
        staged = {"GIT_INDEX_FILE": str(index)}
        self._git("read-tree", tip, more=staged)
        for path, text in files.items():
            blob = self._git("hash-object", "-w", "--stdin", send=text.encode()).strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", more=staged)
        tree = self._git("write-tree", more=staged).strip()
        if tree == self._git("rev-parse", f"{tip}^{{tree}}").strip():
            return tip
        signed = self._run(["config", "--get", "--type=bool", "commit.gpgSign"]).stdout.strip() == b"true"
        sign = ["-S"] if signed else []
        who = _who(self._spec.author, self._clock.now())
        return self._git("commit-tree", *sign, tree, "-p", tip, send=message.encode(), more=who).strip()

    def _push(self, arguments: Sequence[str]) -> None:
        done = self._run(["push", *arguments], remote=True)
        if done.returncode == 0:
            return
        refused = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("!")]
        if not refused:
            self._fail(done)
        reason = refused[0].rpartition("\t")[2]
        if _MOVED.search(reason):
            raise BranchMoved(
                f"{self._named}: somebody else has pushed meanwhile: {reason}",
                hint="the branch is read again by itself",
            )
        words = "; ".join(self._words(done, "remote: ")) or reason
        raise GitRefused(
            f"{self._named} does not take the commit: {self._clean(reason)}: {words}",
            hint="allow the one who pushes on that branch",
        )

    @property
    def _named(self) -> str:
        return redacted(self._spec.repository)

    @property
    def _folder(self) -> Path:
        if self._place is None:
            self._place = Path(mkdtemp(prefix="tidegate-git-"))
            weakref.finalize(self, shutil.rmtree, self._place, ignore_errors=True)
            self._git("init", "--quiet", "--bare", "--template=")
            self._git("remote", "add", "origin", self._spec.repository)
        return self._place

    def _git(self, *arguments: str, send: bytes = b"", more: Mapping[str, str] | None = None) -> str:
        """What a command that asks nobody says."""
        done = self._run(arguments, send=send, more=more)
        if done.returncode:
            words = "; ".join(self._words(done)) or "no reason given"
            raise GitRefused(f"git {arguments[0]} failed: {words}", hint="look at the configuration of git here")
        return done.stdout.decode(errors="replace")

    def _fail(self, done: subprocess.CompletedProcess[bytes]) -> NoReturn:
        lines = self._words(done)
        words = "; ".join(lines[:3]) or f"git ended with {done.returncode}"
        if _REFUSED.search(" ".join(lines)):
            hint = "check its address, `git.auth`, and the rights of the one who pushes"
            raise GitRefused(f"{self._named}: {words}", hint=hint)
        raise GitAway(f"{self._named}: {words}", hint="check that it can be reached from here")

    def _words(self, done: subprocess.CompletedProcess[bytes], begin: str = "") -> list[str]:
        """What git has said on stderr, or its server, without any secret."""
        said = (line.strip() for line in done.stderr.decode(errors="replace").splitlines())
        kept = [line.removeprefix(begin).strip() for line in said if line.startswith(begin)]
        return [self._clean("".join(filter(str.isprintable, line))) for line in kept if line]

    def _clean(self, text: str) -> str:
        return without_credentials(scrubbed(text, self._used))

    def _run(
        self,
        arguments: Sequence[str],
        *,
        send: bytes = b"",
        remote: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**variables_for(Child.GIT, os.environ), **_UNATTENDED, **(more or {})}
        if remote:
            environment |= self._access()
        log.debug("git %s", shlex.join(arguments))
        try:
            # A session of its own: neither ssh nor git finds a terminal to ask a person at.
            return subprocess.run(
                [self._program, "-c", "core.hooksPath=/dev/null", "--git-dir", str(self._folder / "bare"), *arguments],
                input=send,
                capture_output=True,
                env=environment,
                timeout=CALL_SECONDS,
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError:
            raise GitMissing("`git` is not installed on this machine", hint="install it: `apt install git`") from None
        except subprocess.TimeoutExpired:
            raise GitAway(f"{self._named}: no answer within {CALL_SECONDS:.0f} s", hint="try it by hand") from None

    def _access(self) -> Mapping[str, str]:
        """Variables that let a child in."""
        if self._spec.auth is None:
            return {}
        password = self._secrets.text(self._spec.auth.password)
        said = b64encode(f"{self._spec.auth.username}:{password}".encode()).decode()
        self._used |= {password, said}
        parts = urlsplit(self._spec.repository)
        header = f"http.{parts.scheme}://{parts.netloc}/.extraHeader"
        settings = {header: f"Authorization: Basic {said}", "credential.helper": "", "http.followRedirects": "false"}
        found = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, setting) in enumerate(settings.items()):
            found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": setting}
        return found


_HERE = "refs/tidegate/branch"
_UNATTENDED = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "ssh:https:http:file"}


def _who(author: AuthorSpec, at: datetime) -> dict[str, str]:
    said = {"NAME": author.name, "EMAIL": author.email, "DATE": f"{int(at.timestamp())} +0000"}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in said.items()}
