"""What to do with a draft: the commands, in their order. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.draft.model import Draft
from rollouts.survey.model import Router, ServingSurvey
from tidegate.core.model import Value


class NextStep(Value):
    """One of them."""

    what: str
    command: str = ""


def next_steps(draft: Draft, lead: ServingSurvey, path: Path, *, adopting: bool = False) -> Iterator[NextStep]:
    """From a draft to a delivery that serves: next to what serves, or once that is taken over."""
    model, name = draft.document["model"]["name"], draft.document["metadata"]["name"]
    region = next(iter(draft.document["fleet"]["regions"]))
    yield NextStep(what=f"look at every TODO in {path}")
    yield NextStep(
        what="register the files of what serves now as champion, and of the next version as challenger",
        command=f"tidegate model add {model} FOLDER --alias champion",
    )
    yield NextStep(
        what="look at what each region gets; an administrator applies the set-up part",
        command=f"tidegate rollout render {path} --region {region} --part setup",
    )
    yield NextStep(what="find what would break a delivery there", command=f"tidegate doctor {path}")
    yield NextStep(what="see the requests and the time that each gate needs", command=f"tidegate plan {path}")
    if adopting:
        yield NextStep(
            what=f"look how {lead.subject} is taken over, then take it over",
            command=f"tidegate rollout adopt {path} --region {region} --dry-run",
        )
        yield NextStep(what="deliver the next version", command=f"tidegate deliver {path}")
        return
    yield NextStep(
        what=f"serve next to {lead.subject}, under the name {name}: tidegate takes over no objects of others, so until "
        f"users have moved both need their accelerators",
        command=f"tidegate deliver {path}",
    )
    yield NextStep(what=_moving(lead))


def _moving(lead: ServingSurvey) -> str:
    """How users get there today."""
    old = f"{lead.traffic.router} {lead.traffic.route}"
    when = "when `tidegate status` shows the champion as stable, move users"
    if lead.traffic.router is Router.HTTP_ROUTE:
        how = f"take its host from {old}; of two routes with one host a gateway heeds the older"
    elif lead.traffic.router is Router.NONE:
        how = "lead them to the gateway of the draft"
    else:
        how = f"take the host from {old}"
    return f"{when}: {how}. Gates of a canary decide nothing before (docs/guides/cluster.md#from-what-you-have)"
