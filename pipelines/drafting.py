"""Writes a first spec from what a cluster has. Reads the cluster, writes one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.adapters.fleets import cluster_client
from pipelines.draft.delivery import draft_delivery
from pipelines.draft.model import DraftNote, DraftNoteKind
from pipelines.draft.next_steps import NextStep, next_steps
from pipelines.draft.text import draft_text
from pipelines.spec.delivery import Delivery
from rollouts.survey import survey
from tidegate.core.files import write_atomically
from tidegate.core.spec import SpecError, parse_spec


class WrittenDraft(NamedTuple):
    """What came of it."""

    name: str
    """Of the delivery."""
    source: str
    """The Rollout, and where it is."""
    owner: str
    """What the Rollout says of who manages it."""
    notes: Sequence[DraftNote]
    """Of the draft, and what the spec says of it."""
    steps: Sequence[NextStep]


async def write_draft(
    path: Path, rollout: str, *, context: str, namespace: str | None, container: str, name: str, adopting: bool
) -> WrittenDraft:
    """Read a Rollout and what stands around it, and write the draft of its delivery.

    Args:
        path: of the file.
        rollout: its name.
        context: of the kubeconfig; empty for the current one.
        namespace: None for the context's.
        container: that serves; told from what they run when empty.
        name: of the delivery; chosen when empty.
        adopting: whether the Rollout is to be taken over.

    Raises:
        UsageError: there is no such Rollout or container, or the name is taken; nothing is written then.
        FleetError: the cluster does not answer, or does not let us read.
    """
    async with cluster_client(context, namespace) as cluster:
        found = await survey(cluster, rollout, context=context, namespace=cluster.namespace, container=container)
    draft = draft_delivery(found, name=name, adopting=adopting)
    source = f"{found.subject} in {found.namespace} ({context or 'the current context'})"
    head = (
        f"A draft from {source}, by",
        "`tidegate init --from-rollout`. Values of variables and Secrets were not read.",
        "Each value says where it is from; a TODO is yours to decide. `tidegate plan` shows what the file comes to.",
    )
    text = draft_text(draft, head)
    write_atomically({path: text})
    notes = list(draft.notes)
    try:
        parse_spec(text, Delivery, file=str(path))
    except SpecError as error:
        # Something of theirs that was not foreseen.
        for each in error.problems:
            what = f"line {each.line}: found {each.found}; expected {each.expected}"
            notes.append(DraftNote(kind=DraftNoteKind.DECIDE, subject=each.path, what=what))
    steps = list(next_steps(draft, found, path, adopting=adopting))
    return WrittenDraft(draft.document["metadata"]["name"], source, found.owner, notes, steps)
