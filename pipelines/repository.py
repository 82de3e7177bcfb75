"""A Git repository as a delivery needs it: what it reads and writes there, and who tells what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate.core.errors import OutsideError, Refused
from tidegate.core.model import Value


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


class GitRepository(Protocol):
    """One branch of a remote repository. Every call may take as long as its host does, and raises `GitAway` or
    `GitRefused`.
    """

    def read(self, paths: Collection[str]) -> BranchFiles:
        """The branch as it is now.

        Raises:
            UsageError: there is no such branch.
        """
        ...

    def commit(self, base: BranchFiles, files: Mapping[str, str], message: str, *, dry_run: bool = False) -> str:
        """Push a commit on `base` with these texts as the tip of the branch; returns its id.

        With `dry_run` everything but the push's effect.

        Raises:
            BranchMoved: the branch is not at `base` any more.
        """
        ...

    def includes(self, revision: str, commit: str) -> bool:
        """Whether `revision` is `commit` or comes after it, as far as it was read."""
        ...


class Applied(Value):
    """What a tool that applies files from Git says of a region."""

    who: str
    """`Argo CD application llm-eu`."""
    revisions: tuple[str, ...]
    """The commits that it has applied, or compared with; none when it has not said any yet."""
    in_sync: bool
    words: str
    """What it says of itself."""


class SyncSource(Protocol):
    """The tool that applies what Git says, by region."""

    async def applied(self, region: str) -> Applied:
        """What it says now; raises `FleetError` where it cannot be asked."""
        ...


@dataclass(frozen=True)
class GitAccess:
    """What a delivery with `git` in its spec is given."""

    repository: GitRepository
    synced: SyncSource | None = None
    """None where nobody is waited for."""
