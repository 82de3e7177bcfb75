"""What is wrong with the Git repository of a delivery, as findings of the doctor."""

from __future__ import annotations

from pipelines.repository import READABLE_SYNC, GitMissing, GitRefused, SyncUnreadable
from pipelines.spec.delivery import Delivery
from rollouts.doctor.model import Check, Finding, Severity
from tidegate.app.git.preview import refuse_unreadable_sync, refuse_unwritable_git
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.spec import SpecError

AWAY = Check(
    code="git-away",
    severity=Severity.ERROR,
    cause="the repository's host did not answer: a delivery waits for it, and then goes back",
    remediation="check that it can be reached from here",
)
REFUSED = Check(
    code="git-refused",
    severity=Severity.ERROR,
    cause="the repository does not take what a delivery would push: no rights, no such branch, an unknown host",
    remediation="its own words say which",
)
FIELD = Check(
    code="git-field",
    severity=Severity.ERROR,
    cause="a delivery replaces fields that are there, and would end after its first promotion",
    remediation="write the field once by hand, or name another under `git.files`",
)
MISSING = Check(
    code="git-missing",
    severity=Severity.ERROR,
    cause="the machine that delivers has no git",
    remediation="install it",
)
SYNC = Check(
    code="git-sync",
    severity=Severity.ERROR,
    cause="a delivery cannot ask whether its commit was applied, and would go back once `git.sync.within` is over",
    remediation=READABLE_SYNC,
)
GIT_CHECKS = (AWAY, REFUSED, FIELD, MISSING, SYNC)


def git_findings(spec: Delivery) -> tuple[Finding, ...]:
    """None where a commit could be pushed and its sync be asked for, or the spec names no repository."""
    found = []
    for refuse in (refuse_unwritable_git, refuse_unreadable_sync):
        try:
            refuse(spec)
        except TidegateError as error:
            found.append(_finding(error))
    return tuple(found)


def _finding(error: TidegateError) -> Finding:
    """Of the fault that the error tells; its own hint knows more than what is done about all such faults."""
    finding = _check(error).found(error.message)
    return finding.model_copy(update={"remediation": error.hint}) if error.hint else finding


def _check(error: TidegateError) -> Check:
    if isinstance(error, SpecError):
        return FIELD
    if isinstance(error, GitMissing):
        return MISSING
    if isinstance(error, SyncUnreadable):
        return SYNC
    return REFUSED if isinstance(error, GitRefused | UsageError) else AWAY
