"""What a strict server does with fields that a kind does not have, and with values that it cannot have.

By the product's own schemas ("Server Side Field Validation"); a kind without one is not checked. What was wrong before
and was not touched passes (`CRDValidationRatcheting`).
"""

from __future__ import annotations

from typing import Any

from fakes.kube.refusal import Refusal, bad_request
from fakes.kube.store import Kind

from rollouts.manifests.schema import SchemaProblem, problems_in
from tidegate.core.model import Json


def require_typed(kind: Kind, config: Json) -> None:
    """
    Raises:
        Refusal: what is applied has fields that the kind does not know (500 and no reason: the typing's own error).
    """
    unknown = [problem for problem in _new_problems(kind, config, None) if problem.unknown]
    if unknown:
        said = "; ".join(f".{problem.path}: field not declared in schema" for problem in unknown)
        metadata = config.get("metadata", {})
        what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.api_version}, Kind={kind.kind}"
        raise Refusal(500, "", f"failed to create typed patch object ({what}): {said}")


def require_valid(kind: Kind, body: Json, before: Json | None) -> None:
    """
    Raises:
        Refusal: there are fields that the kind does not know, or values that the schema does not allow (400).
    """
    if problems := _new_problems(kind, body, before):
        said = "; ".join(f'unknown field "{each.path}"' if each.unknown else str(each) for each in problems)
        raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {said}')


def without_nulls(value: Any) -> Any:
    """A copy without fields that are null: for a built-in kind they are absent, from a custom one they are pruned."""
    if isinstance(value, dict):
        return {key: one if type(one) is str else without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, (list, tuple)) else value


def _new_problems(kind: Kind, body: Json, before: Json | None) -> list[SchemaProblem]:
    if any(problem.where == ("kind",) for problem in problems_in({"apiVersion": kind.api_version, "kind": kind.kind})):
        return []
    old = set() if before is None else {str(problem) for problem in problems_in(without_nulls(before))}
    return [problem for problem in problems_in(body) if str(problem) not in old]
