"""What a server does with fields that a kind does not have, and with values that it cannot have.

Kubernetes, "Server Side Field Validation" and "Custom Resources: Field pruning"; the schemas are the product's own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fakes.kube.copying import copied
from fakes.kube.kinds import Kind
from fakes.kube.refusal import Cause, Refusal, bad_request, invalid

from rollouts.manifests.schema import Problem, has_schema, problems_in

Json = dict[str, Any]


class FieldValidation(StrEnum):
    """The query parameter `fieldValidation`."""

    STRICT = "Strict"
    """An unknown field is refused."""
    WARN = "Warn"
    """An unknown field is dropped with a warning: what a server does when it is not asked for anything."""
    IGNORE = "Ignore"
    """An unknown field is dropped without a word."""


class FieldCheck:
    """The checks of one request; what was wrong before and was not touched passes (`CRDValidationRatcheting`)."""

    def __init__(self, how: FieldValidation) -> None:
        self._how = how
        self.warnings: list[str] = []
        """What the answer's Warning header says."""

    def decoded(self, kind: Kind, body: Json, before: Json | None) -> Json:
        """The body without nulls and without fields that its kind does not know.

        Raises:
            Refusal: there are such fields, and the request is strict (400).
        """
        if not has_schema(kind.api_version, kind.kind):
            return body
        body = without_nulls(body)
        unknown = [problem for problem in _new_problems(body, before) if problem.unknown]
        if unknown and self._how is FieldValidation.STRICT:
            said = ", ".join(f'unknown field "{problem.path}"' for problem in unknown)
            raise bad_request(f"{_unreadable(kind)}: strict decoding error: {said}")
        for problem in unknown:
            _drop(body, problem)
            if self._how is FieldValidation.WARN:
                self.warnings.append(f'unknown field \\"{problem.path}\\"')
        return body

    def typed(self, kind: Kind, config: Json) -> Json:
        """What is applied, without nulls. It is typed first: how strict the request is does not matter then.

        Raises:
            Refusal: there are fields that the kind does not know (500 and no reason: the typing's own error).
        """
        if not has_schema(kind.api_version, kind.kind):
            return config
        config = without_nulls(config)
        unknown = [problem for problem in _new_problems(config, None) if problem.unknown]
        if unknown:
            said = "; ".join(f".{problem.path}: field not declared in schema" for problem in unknown)
            metadata = config.get("metadata", {})
            what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.api_version}, Kind={kind.kind}"
            raise Refusal(500, "", f"failed to create typed patch object ({what}): {said}")
        return config

    def valid(self, kind: Kind, body: Json, before: Json | None) -> None:
        """Values are such as the schema allows.

        Raises:
            Refusal: some are not (422; 400 for built-in kinds, whose objects cannot even be decoded then).
        """
        if not has_schema(kind.api_version, kind.kind):
            return
        wrong = [problem for problem in _new_problems(body, before) if not problem.unknown]
        if wrong and kind.custom:
            name = str(body.get("metadata", {}).get("name", ""))
            raise invalid(kind.kind, kind.group, name, tuple(_cause(problem) for problem in wrong))
        if wrong:
            raise bad_request(f"{_unreadable(kind)}: {'; '.join(str(problem) for problem in wrong)}")


def _new_problems(body: Json, before: Json | None) -> list[Problem]:
    old = set() if before is None else {str(problem) for problem in problems_in(without_nulls(before))}
    return [problem for problem in problems_in(body) if str(problem) not in old]


def without_nulls(value: Any) -> Any:
    """A copy without fields that are null: for a built-in kind they are absent, from a custom one they are pruned."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return copied(value)


def _unreadable(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _cause(problem: Problem) -> Cause:
    if "required" in problem.message:
        return Cause("FieldValueRequired", "Required value", problem.path)
    return Cause("FieldValueInvalid", f"Invalid value: {problem.message}", problem.path)


def _drop(body: Json, problem: Problem) -> None:
    node: Any = body
    *way, last = problem.where
    for part in way:
        node = node[part]
    node.pop(last, None)
