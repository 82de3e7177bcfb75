"""A first spec from what clusters have. Reads clusters, writes one file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.fleets import cluster_client
from pipelines.draft.delivery import draft_delivery
from pipelines.draft.model import Draft, DraftNote, DraftNoteKind
from pipelines.draft.next_steps import NextStep, next_steps
from pipelines.draft.text import draft_text
from pipelines.spec.delivery import Delivery
from rollouts.survey import ServingSurvey, WorkloadKind, survey
from tidegate.core.errors import UsageError
from tidegate.core.files import write_atomically
from tidegate.core.spec import SpecError, parse_spec


@dataclass(frozen=True)
class DraftRequest:
    """What the command line says."""

    kind: WorkloadKind
    workload: str
    contexts: tuple[str, ...]
    """Of the kubeconfig; none for the current one."""
    namespace: str | None
    """None for that of each context."""
    name: str
    """Of the delivery; chosen when empty."""
    container: str
    to: Path
    adopting: bool = False
    """Whether the workload is to be taken over."""


@dataclass(frozen=True)
class DraftedSpec:
    """A draft that was written."""

    path: Path
    surveys: tuple[ServingSurvey, ...]
    draft: Draft
    notes: tuple[DraftNote, ...]
    """Of the draft, and what the spec says of it."""
    steps: tuple[NextStep, ...]


def draft_from_clusters(asked: DraftRequest) -> DraftedSpec:
    """Read each cluster, and write the draft. Changes nothing in any cluster.

    Raises:
        UsageError: the file is there already or cannot be written, a context is named twice, or there is no such
            workload; nothing is written then.
        FleetError: a cluster does not answer, or does not let us read.
    """
    if asked.to.exists():
        raise UsageError(f"{asked.to} is already there", hint="name another file with --to")
    contexts = asked.contexts or ("",)
    if len(set(contexts)) != len(contexts):
        raise UsageError(f"--context: found {', '.join(contexts)}; expected each context once")
    surveys = tuple(asyncio.run(_surveys(asked, contexts)))
    draft = draft_delivery(surveys, name=asked.name, adopting=asked.adopting)
    text = draft_text(draft, _head(asked, surveys))
    write_atomically({asked.to: text})
    notes = (*draft.notes, *_problems(text, asked.to))
    return DraftedSpec(asked.to, surveys, draft, notes, next_steps(draft, surveys, asked.to, adopting=asked.adopting))


async def _surveys(asked: DraftRequest, contexts: Sequence[str]) -> Sequence[ServingSurvey]:
    return await asyncio.gather(*(_survey(asked, each) for each in contexts))


async def _survey(asked: DraftRequest, context: str) -> ServingSurvey:
    async with cluster_client(context, asked.namespace) as cluster:
        return await survey(
            cluster,
            asked.kind,
            asked.workload,
            context=context,
            namespace=cluster.namespace,
            container=asked.container,
        )


def _head(asked: DraftRequest, surveys: Sequence[ServingSurvey]) -> tuple[str, ...]:
    where = ", ".join(each.context or "the current context" for each in surveys)
    return (
        f"A draft from {surveys[0].subject} in {surveys[0].namespace} ({where}), by",
        f"`tidegate init --from-{asked.kind.lower()}`. Values of variables and Secrets were not read.",
        "Each value says where it is from; a TODO is yours to decide. `tidegate plan` shows what the file comes to.",
    )


def _problems(text: str, path: Path) -> list[DraftNote]:
    """What the spec refuses in the draft: something of theirs that was not foreseen."""
    try:
        parse_spec(text, Delivery, file=str(path))
    except SpecError as error:
        return [
            DraftNote(
                kind=DraftNoteKind.DECIDE,
                subject=each.path,
                what=f"line {each.line}: found {each.found}; expected {each.expected}",
            )
            for each in error.problems
        ]
    return []
