"""A Git repository by the machine's own `git`: its credential helpers, ssh keys and agents are those of a team; and
what Argo CD and Flux say of its commits, read in the cluster that they run in.

Nothing is checked out: commits are made from objects, so no filter, hook or attribute of a repository runs here.
Secrets go by the child's environment and by private files, never by arguments or addresses.
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
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from threading import RLock
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from pipelines.spec.delivery import Delivery
from pipelines.spec.git import ArgoCdSpec, AuthorSpec, FluxSpec, GitSpec, filled
from rollouts.kube.resources import APPLICATIONS, KUSTOMIZATIONS
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.access import SecretStore, scrubbed
from tidegate.core.children import Child, variables_for
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, Refused, UsageError, without_credentials
from tidegate.core.files import Unreadable, text_of
from tidegate.core.model import Json, Value
from tidegate.core.spec import Problem, SpecError
from tidegate.core.text import redacted
from tidegate.core.yaml_text import MOST_CHARACTERS

if TYPE_CHECKING:
    from rollouts.kube.client import KubeClient

log = logging.getLogger(__name__)


class GitAway(OutsideError):
    """The repository's host did not answer; it may later."""


class GitRefused(OutsideError):
    """The repository does not let us in, or does not take the commit; the message has its own words."""


class GitMissing(Refused):
    """There is no `git` on this machine."""


READABLE_SYNC = "name what is there under `git.sync`, and let the one who delivers `get` it"


class SyncUnreadable(OutsideError):
    """What is to say that it has applied a commit is not there, or may not be read; its cluster says so."""


LOOKED_AT_AGAIN = "the branch is read and edited again by itself; `tidegate resume` when the delivery gave up"


class BranchMoved(OutsideError):
    """Somebody else has pushed since it was read; nothing was written."""


class BranchFiles(Value):
    """Some files of the branch as one commit has them."""

    commit: str
    files: Mapping[str, str]
    """Texts by path; those that are not there are left out."""


CALL_SECONDS = 60.0
"""For one command; what takes longer is a host that hangs."""
NO_SUCH_BRANCH = 2
"""How `git ls-remote --exit-code` ends then."""
REGULAR = ("100644", "100755")
"""Modes of files; a link or a submodule is none."""
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
    """One branch of a remote repository, with a folder of its own that goes with this object.

    Every call may take as long as its host does, and raises `GitAway` or `GitRefused`.
    """

    def __init__(
        self,
        spec: GitSpec,
        clock: Clock,
        *,
        synced: ToolInCluster | None = None,
        secrets: SecretStore | None = None,
        program: str = "git",
    ) -> None:
        """`synced` applies what Git says; None where nobody is waited for. Asks nobody, and reads no secret yet."""
        self._spec, self._clock, self._program = spec, clock, program
        self.synced = synced
        self._secrets = secrets or SecretStore()
        self._place: Path | None = None
        self._used: set[str] = set()
        self._tip = ""
        # A delivery that is stopped leaves a call behind; what rolls it back waits for its end.
        self._lock = RLock()

    def read(self, paths: Collection[str]) -> BranchFiles:
        """The branch as it is now.

        Raises:
            UsageError: there is no such branch.
        """
        with self._lock:
            commit = self._fetched()
            found = {path: self._text(commit, path) for path in dict.fromkeys(paths)}
            texts = {path: text for path, text in found.items() if text is not None}
            return BranchFiles(commit=commit, files=texts)

    def commit(self, base: BranchFiles, files: Mapping[str, str], message: str, *, dry_run: bool = False) -> str:
        """Push a commit on `base` with these texts as the tip of the branch; returns its id.

        With `dry_run` everything but the push's effect.

        Raises:
            BranchMoved: the branch is not at `base` any more.
        """
        with self._lock:
            new = self._committed(base, files, message)
            # Never forced: a branch that has moved is read again.
            dry = ["--dry-run"] if dry_run else []
            self._push([*dry, "--porcelain", "origin", f"{new}:{self._branch}"])
            return new

    def includes(self, revision: str, commit: str) -> bool:
        """Whether `revision` is `commit` or comes after it, as far as it was read."""
        with self._lock:
            if revision == commit:
                return True
            known = all(
                self._run(["cat-file", "-e", f"{each}^{{commit}}"]).returncode == 0 for each in (revision, commit)
            )
            return known and self._run(["merge-base", "--is-ancestor", commit, revision]).returncode == 0

    @property
    def _branch(self) -> str:
        return f"refs/heads/{self._spec.branch}"

    def _fetched(self) -> str:
        """The branch's newest commit, brought here; from then on all that come after it are."""
        done = self._run(["ls-remote", "--exit-code", "origin", self._branch], remote=True)
        if done.returncode == NO_SUCH_BRANCH:
            raise UsageError(f"{self._named} has no branch {self._spec.branch}", hint="name one: git.branch")
        if done.returncode:
            self._fail(done)
        tip = done.stdout.decode().split("\t")[0]
        if tip == self._tip:
            return tip
        depth = [] if self._tip else ["--depth=1"]
        done = self._run(["fetch", "--quiet", "--no-tags", *depth, "origin", f"+{self._branch}:{_HERE}"], remote=True)
        if done.returncode:
            self._fail(done)
        self._tip = self._git("rev-parse", _HERE).strip()
        return self._tip

    def _text(self, commit: str, path: str) -> str | None:
        entry = self._git("ls-tree", "-z", commit, "--", path)
        if not entry:
            return None
        mode = entry.split(" ", 1)[0]
        if mode not in REGULAR:
            raise SpecError([Problem(path, 0, "", "a folder, a link or a submodule in the repository", "a file")])
        content = self._run(["cat-file", "blob", f"{commit}:{path}"]).stdout
        if len(content) > 4 * MOST_CHARACTERS:
            raise SpecError([Problem(path, 0, "", "a larger file", f"at most {MOST_CHARACTERS // 1024} KiB")])
        try:
            # A byte order mark is the file's, and stays.
            text_of(content)
            return content.decode()
        except Unreadable as error:
            raise SpecError([Problem(path, error.line, "", str(error), "text in UTF-8")]) from error

    def _committed(self, base: BranchFiles, files: Mapping[str, str], message: str) -> str:
        """The commit's id; nobody but us knows of it yet."""
        index = self._folder / "index"
        index.unlink(missing_ok=True)
        staged = {"GIT_INDEX_FILE": str(index)}
        self._git("read-tree", base.commit, more=staged)
        for path, text in files.items():
            mode = self._git("ls-tree", base.commit, "--", path).split(" ", 1)[0]
            blob = self._git("hash-object", "-w", "--stdin", send=text.encode()).strip()
            self._git("update-index", "--cacheinfo", f"{mode},{blob},{path}", more=staged)
        tree = self._git("write-tree", more=staged).strip()
        signed = self._run(["config", "--get", "--type=bool", "commit.gpgSign"]).stdout.strip() == b"true"
        sign = ["-S"] if signed else []
        who = _who(self._spec.author, self._clock.now())
        return self._git("commit-tree", *sign, tree, "-p", base.commit, send=message.encode(), more=who).strip()

    def _push(self, arguments: Sequence[str]) -> None:
        done = self._run(["push", *arguments], remote=True)
        if done.returncode == 0:
            return
        refused = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("!")]
        if not refused:
            self._fail(done)
        reason = refused[0].rpartition("\t")[2]
        if _MOVED.search(reason):
            raise BranchMoved(f"{self._named}: somebody else has pushed meanwhile: {reason}", hint=LOOKED_AT_AGAIN)
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
            self._git("init", "--quiet", "--bare", "--template=", str(self._place / "bare"), inside=False)
            self._git("remote", "add", "origin", self._spec.repository)
        return self._place

    def _git(
        self,
        *arguments: str,
        send: bytes = b"",
        more: Mapping[str, str] | None = None,
        inside: bool = True,
    ) -> str:
        """What a command that asks nobody says."""
        done = self._run(arguments, send=send, more=more, inside=inside)
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
        inside: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        folder = ["--git-dir", str(self._folder / "bare")] if inside else []
        environment = {**variables_for(Child.GIT, os.environ), **_UNATTENDED, **(more or {})}
        if remote:
            environment |= self._access()
        log.debug("git %s", shlex.join(arguments))
        try:
            # A session of its own: neither ssh nor git finds a terminal to ask a person at.
            return subprocess.run(
                [self._program, "-c", "core.hooksPath=/dev/null", *folder, *arguments],
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
        auth = self._spec.auth
        if auth is None:
            return {}
        if auth.ssh:
            return {"GIT_SSH_COMMAND": self._ssh_command()}
        if auth.basic:
            password = self._secrets.text(auth.basic.password)
            self._used |= {password, _header_of(auth.basic.username, password)}
            value = f"Basic {_header_of(auth.basic.username, password)}"
        else:
            assert auth.bearer is not None, "a spec with none of them was refused"
            token = self._secrets.text(auth.bearer)
            self._used.add(token)
            value = f"Bearer {token}"
        parts = urlsplit(self._spec.repository)
        header = f"http.{parts.scheme}://{parts.netloc}/.extraHeader"
        settings = {header: f"Authorization: {value}", "credential.helper": "", "http.followRedirects": "false"}
        found = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, setting) in enumerate(settings.items()):
            found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": setting}
        return found

    def _ssh_command(self) -> str:
        """Ssh with the key in a private file: it takes none that others may read, as mounted Secrets are."""
        assert self._spec.auth is not None and self._spec.auth.ssh is not None
        ssh = self._spec.auth.ssh
        key = _private(self._folder / "key", self._secrets.text(ssh.key))
        options = ["-i", str(key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        if ssh.known_hosts:
            known = _private(self._folder / "known_hosts", self._secrets.text(ssh.known_hosts))
            options += ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]
        return shlex.join(["ssh", *options])


_HERE = "refs/tidegate/branch"
_UNATTENDED = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "ssh:https:http:file"}


def _header_of(username: str, password: str) -> str:
    return b64encode(f"{username}:{password}".encode()).decode()


def _private(path: Path, text: str) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{text}\n")
    return path


def _who(author: AuthorSpec, at: datetime) -> dict[str, str]:
    said = {"NAME": author.name, "EMAIL": author.email, "DATE": f"{int(at.timestamp())} +0000"}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in said.items()}


class Applied(Value):
    """What a tool that applies files from Git says of a region."""

    who: str
    """`Argo CD application llm-eu`."""
    revisions: tuple[str, ...]
    """The commits that it has applied, or compared with; none when it has not said any yet."""
    in_sync: bool
    words: str
    """What it says of itself."""


class ToolInCluster:
    """The tool that applies what Git says, by region."""

    def __init__(self, tool: ArgoCdSpec | FluxSpec, cluster_of: Callable[[str], KubeClient]) -> None:
        """`cluster_of` connects to the cluster in which a region's tool runs. Asks nobody yet."""
        self._tool, self._cluster_of = tool, cluster_of

    async def applied(self, region: str) -> Applied:
        """What it says now; raises `FleetError` where it cannot be asked."""
        tool, cluster = self._tool, self._cluster_of(region)
        try:
            if isinstance(tool, ArgoCdSpec):
                name = filled(tool.application, {"region": region})
                return said_by_argo_cd(name, await cluster.get(APPLICATIONS, name, namespace=tool.namespace))
            name = filled(tool.kustomization, {"region": region})
            return said_by_flux(name, await cluster.get(KUSTOMIZATIONS, name, namespace=tool.namespace))
        finally:
            await cluster.close()


def said_by_argo_cd(name: str, found: Json) -> Applied:
    """Of an Application: with which commit it has compared the cluster, and whether they agree."""
    status = found.get("status") or {}
    sync, operation = status.get("sync") or {}, status.get("operationState") or {}
    revisions = [sync.get("revision"), *(sync.get("revisions") or ())]
    failed = operation.get("phase") in ("Failed", "Error")
    words = [str(sync.get("status") or "it has not compared anything yet")]
    words += [" ".join(str(operation.get("message", "")).split())] if failed else []
    words += [each.get("message", "") for each in status.get("conditions") or () if "Error" in each.get("type", "")]
    return Applied(
        who=f"Argo CD application {name}",
        revisions=tuple(filter(None, revisions)),
        in_sync=sync.get("status") == "Synced",
        words="; ".join(filter(None, words)),
    )


def said_by_flux(name: str, found: Json) -> Applied:
    """Of a Kustomization: the commit behind `BRANCH@sha1:`, and whether it is ready."""
    status = found.get("status") or {}
    last = str(status.get("lastAppliedRevision") or "").rpartition(":")[2].rpartition("/")[2]
    ready: Json = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    return Applied(
        who=f"Flux kustomization {name}",
        revisions=(last,) if last else (),
        in_sync=ready.get("status") == "True",
        words=" ".join(str(ready.get("message") or "it has not applied anything yet").split()),
    )


def git_access_for(spec: Delivery, clock: Clock) -> GitRemote | None:
    """The repository that says what regions serve; None where the spec names none. Asks nobody yet."""
    git, fleet = spec.git, spec.fleet
    if git is None:
        return None
    if git.sync is None or not isinstance(fleet, ClusterFleetSpec):
        return GitRemote(git, clock)
    tool = git.sync.tool

    def cluster_of(region: str) -> KubeClient:
        # Not above: a delivery that waits for nobody needs none of it here.
        from rollouts.kube.client import connect

        return connect(tool.context or fleet.regions[region].context or None, clock=clock, namespace=tool.namespace)

    return GitRemote(git, clock, synced=ToolInCluster(tool, cluster_of))
