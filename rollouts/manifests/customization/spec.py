"""`fleet.patches`: changes of yours to what is rendered, as Kustomize has them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from tidegate.core.model import SpecModel

Kind = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")]
"""Of an object, such as Rollout."""

AnyName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""Of an object of any kind; those of analyses have dots."""

Pointer = Annotated[str, Field(pattern=r"^(/([^~/]|~0|~1)*)+$")]
"""A place in an object (RFC 6901), such as /spec/template/spec/hostNetwork; not the whole object."""


class PatchTarget(SpecModel):
    """Which of the rendered objects are changed."""

    kind: Kind
    name: AnyName | None = None
    """All of the kind when absent."""


class JsonPatchOp(StrEnum):
    """What is done at a place (RFC 6902)."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"
    MOVE = "move"
    COPY = "copy"
    TEST = "test"


class JsonPatchOperation(SpecModel):
    """One change at one place."""

    op: JsonPatchOp
    path: Pointer
    origin: Pointer | None = Field(default=None, alias="from")
    """Of `move` and `copy`."""
    value: JsonValue = None
    """Of `add`, `replace` and `test`."""

    @model_validator(mode="after")
    def _whole(self) -> JsonPatchOperation:
        if (self.op in {JsonPatchOp.MOVE, JsonPatchOp.COPY}) != (self.origin is not None):
            raise ValueError("`from` with move and copy, and with no other operation")
        if (self.op in {JsonPatchOp.ADD, JsonPatchOp.REPLACE, JsonPatchOp.TEST}) != ("value" in self.model_fields_set):
            raise ValueError("`value` with add, replace and test, and with no other operation")
        return self

    @property
    def as_json(self) -> dict[str, JsonValue]:
        """As RFC 6902 writes it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class PatchSpec(SpecModel):
    """One change of some of the rendered objects."""

    target: PatchTarget
    json6902: tuple[JsonPatchOperation, ...] = Field(min_length=1)
    """JSON Patch (RFC 6902): operations, one after the other."""
