"""`tidegate schema`: the JSON schema of a spec, or of a line that `tidegate gate stream` reads or writes."""

from __future__ import annotations

import json

from pydantic import BaseModel

from tidegate.core.errors import UsageError


def run(kind: str) -> int:
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
    from gates.evidence import Batch
    from gates.reports.gate_file import GateFile
    from gates.reports.verdict_line import Answer
    from pipelines.spec import Delivery
    from pipelines.trust import Trust

    return {"delivery": Delivery, "trust": Trust, "gates": GateFile, "batch": Batch, "answer": Answer}
