"""Who asks for a delivery, as far as the machine that opens it knows. Nothing of it is proven. Pure."""

from __future__ import annotations

from collections.abc import Mapping

REQUESTED_BY = "TIDEGATE_REQUESTED_BY"
"""Set by whoever starts the command for somebody else; `tidegate serve` sets it."""
BY_ALIAS = "alias moved, unknown"
"""MLflow does not say who moved an alias."""

CI = (
    ("GITHUB_ACTOR", "GITHUB_RUN_ID", "GitHub"),
    ("GITLAB_USER_LOGIN", "CI_JOB_ID", "GitLab"),
    ("BUILD_USER_ID", "BUILD_TAG", "Jenkins"),
)
"""The variables that name a person and a run, for each kind of CI."""


def who_asks(environment: Mapping[str, str], *, user: str, host: str) -> str:
    """A person, and the run of CI or the machine, as one line: `ann, GitHub run 17`, `ann@laptop`."""
    if said := environment.get(REQUESTED_BY):
        return said
    for person, run, kind in CI:
        if environment.get(person):
            return f"{environment[person]}, {kind} run {environment.get(run, 'unknown')}"
    return f"{user}@{host}"
