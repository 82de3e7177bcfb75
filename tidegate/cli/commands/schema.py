"""`tidegate schema`: the JSON schema of a spec."""

from __future__ import annotations

import json

from tidegate.core.errors import UsageError
from tidegate.core.model import SpecModel


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
        raise UsageError(f"no spec is called `{kind}`", hint=f"known: {', '.join(known)}")
    return json.dumps(known[kind].model_json_schema(by_alias=True), indent=2, sort_keys=True) + "\n"


def _known() -> dict[str, type[SpecModel]]:
    from pipelines.spec import Delivery

    return {"delivery": Delivery}
