"""The bases of tidegate's data: values that never change and accept nothing they do not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from tidegate.core.meanings import meanings

Loc = tuple[int | str, ...]
"""Where something is in a spec, key by key and index by index."""


AT_ODDS = "at_odds"
"""The type of pydantic's error for what `at_odds` says."""


class Value(BaseModel):
    """A frozen value: what rooms hand to each other and what crosses a process boundary as JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,  # a command uses few of the hundreds of classes that it loads
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """What a field means stands in the JSON schemas too; it is read from the source when somebody asks for one."""
        written = handler(schema)
        properties = handler.resolve_ref_schema(written).get("properties", {})
        for name, meaning in meanings(cls).items():
            field = cls.model_fields.get(name)
            place = properties.get(name if field is None else field.serialization_alias or field.alias or name)
            if place is not None:
                place.setdefault("description", meaning)
        return written


@dataclass(frozen=True)
class Contradiction:
    """Two parts of a spec that are right alone and wrong together."""

    where: Loc
    """The part that a person would change first."""
    found: str
    expected: str


def at_odds(found: str, expected: str) -> PydanticCustomError:
    """A contradiction to raise from a part's own validator: told beside what is wrong in other parts."""
    return PydanticCustomError(AT_ODDS, "found {found}; expected {expected}", {"found": found, "expected": expected})


class SpecModel(Value):
    """A part of a file that a person writes; unknown keys are errors."""

    def contradictions(self) -> Iterator[Contradiction]:
        """What no single field can see; asked of the whole spec once every field is right."""
        yield from ()

    def all_contradictions(self) -> Iterator[Contradiction]:
        """Its own, and those of the parts it consists of, each with its place."""
        yield from self.contradictions()
        for name, field in type(self).model_fields.items():
            yield from _within(getattr(self, name), (field.alias or name,))


def _within(value: object, where: Loc) -> Iterator[Contradiction]:
    if isinstance(value, SpecModel):
        for odd in value.all_contradictions():
            yield replace(odd, where=(*where, *odd.where))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _within(item, (*where, index))
