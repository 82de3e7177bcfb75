"""`tidegate init` and `tidegate schema`: a delivery to start from, also from what clusters have, and our schemas."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from tidegate.cli.output import Output, print_data
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.files import write_atomically

if TYPE_CHECKING:
    from tidegate.app.clusters.draft import DraftedSpec, DraftRequest

TEMPLATES = ("delivery.yaml", "golden.jsonl", "prompts.txt")


def write_example(folder: Path) -> int:
    """Write the templates and the schema that editors check them with.

    Raises:
        UsageError: when a file is already there, or cannot be written; nothing is written then.
    """
    texts = {name: files("tidegate.cli.templates").joinpath(name).read_text(encoding="utf-8") for name in TEMPLATES}
    texts["delivery.schema.json"] = schema_text("delivery")
    existing = [name for name in texts if (folder / name).exists()]
    if existing:
        raise UsageError(f"{folder / existing[0]} is already there", hint="name an empty folder")
    write_atomically({folder / name: text for name, text in texts.items()})
    print(*(folder / name for name in texts), sep="\n")
    return 0


def write_draft(asked: DraftRequest, *, output: Output) -> int:
    """Write a spec from what clusters have, and tell what was found, what is to be decided, and what does not fit."""
    from tidegate.app.clusters.draft import draft_from_clusters

    drafted = draft_from_clusters(asked)
    if output.is_data:
        print_data(_as_data(drafted), output)
        return ExitCode.DELIVERED
    # Not above: an example is written without a console.
    from tidegate.cli.views.console import PlainConsole
    from tidegate.cli.views.draft import draft_text_lines

    console = PlainConsole(soft_wrap=True)
    where = ", ".join(each.context or "the current context" for each in drafted.surveys)
    lead = drafted.surveys[0]
    console.print(f"{drafted.path}: a draft from {lead.subject} in {lead.namespace} ({where}); {lead.owner}")
    console.print(draft_text_lines(drafted.notes, drafted.steps))
    return ExitCode.DELIVERED


def _as_data(drafted: DraftedSpec) -> dict[str, object]:
    return {
        "file": str(drafted.path),
        "delivery": drafted.draft.document["metadata"]["name"],
        "workloads": [
            {"context": each.context or None, "namespace": each.namespace, "kind": str(each.kind), "name": each.name}
            for each in drafted.surveys
        ],
        "findings": [each.model_dump(mode="json") for each in drafted.notes],
        "next": [each.model_dump(mode="json") for each in drafted.steps],
    }


def print_schema(kind: str) -> int:
    """Print the schema of `kind`."""
    print(schema_text(kind), end="")
    return 0


def schema_text(kind: str) -> str:
    """The schema as text that is the same on every run.

    Raises:
        UsageError: for a kind that does not exist.
    """
    known = _known()
    if kind not in known:
        raise UsageError(f"no schema is called `{kind}`", hint=f"known: {', '.join(known)}")
    return json.dumps(known[kind].model_json_schema(by_alias=True), indent=2, sort_keys=True) + "\n"


def _known() -> dict[str, type[BaseModel]]:
    from gates.evidence.batch import Batch
    from gates.reports.gate_file import GateFile
    from pipelines.spec.delivery import Delivery
    from pipelines.spec.trust import Trust

    return {"delivery": Delivery, "trust": Trust, "gates": GateFile, "batch": Batch}
