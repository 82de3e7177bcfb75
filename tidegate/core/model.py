"""The bases of tidegate's data: values that never change and accept no unknown fields."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

Json = dict[str, Any]
"""A JSON object of others, such as the Kubernetes API's or Envoy's: fields that tidegate does not know are kept."""

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
        for each in cls.__mro__:
            meanings = _meanings_in(each.__module__).get(each.__qualname__, {}) if issubclass(each, Value) else {}
            for name, meaning in meanings.items():
                field = cls.model_fields.get(name)
                place = properties.get(name if field is None else field.serialization_alias or field.alias or name, {})
                place.setdefault("description", meaning)
        return written


@cache
def _meanings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Class by class, field by field; all at once, because `inspect` parses the whole module for each class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: dict(_described(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _described(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                yield name, inspect.cleandoc(meaning)


@dataclass(frozen=True)
class SpecConflict:
    """Two parts of a spec that are right alone and wrong together."""

    where: Loc
    """The part that a person would change first."""
    found: str
    expected: str


def at_odds(found: str, expected: str) -> PydanticCustomError:
    """A contradiction to raise from a part's own validator: told besides what is wrong in other parts."""
    return PydanticCustomError(AT_ODDS, "found {found}; expected {expected}", {"found": found, "expected": expected})


class SpecModel(Value):
    """A part of a file that a person writes: unknown keys are errors, but for those that begin with `x-`."""

    example: ClassVar[str] = ""
    """How a person writes it, in one line, for one who wrote something else in its place."""
    of_other_names: ClassVar[Any] = None
    """The annotation of what stands under keys of a person's own, in a part that has room for them: a union by tag."""

    one_of: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one is there."""

    @model_validator(mode="before")
    @classmethod
    def _without_extensions(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {key: each for key, each in given.items() if not str(key).startswith("x-")}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """As `Value`; editors let those keys pass too."""
        written = super().__get_pydantic_json_schema__(schema, handler)
        handler.resolve_ref_schema(written)["patternProperties"] = {"^x-": {}}
        return written

    @model_validator(mode="after")
    def _has_one_of(self) -> Self:
        said = [name for name in self.one_of if getattr(self, name) is not None]
        if self.one_of and len(said) != 1:
            raise at_odds(" and ".join(said) or "nothing", f"exactly one of {', '.join(self.one_of)}")
        return self

    def contradictions(self) -> Iterator[SpecConflict]:
        """What no single field can see; asked of the whole spec once every field is right."""
        yield from ()

    def all_contradictions(self) -> Iterator[SpecConflict]:
        """Its own, and those of the parts it consists of, each with its place."""
        for where, part in parts_of(self):
            if isinstance(part, SpecModel):
                yield from below(where, part.contradictions())


def below(where: Loc, found: Iterable[SpecConflict]) -> Iterator[SpecConflict]:
    """Conflicts of a part, at their places in the whole."""
    return (replace(each, where=(*where, *each.where)) for each in found)


def parts_of(value: object, where: Loc = ()) -> Iterator[tuple[Loc, object]]:
    """Everything that a spec says, itself first, each part before what it consists of; with its place."""
    yield where, value
    inner: Iterable[tuple[int | str, object]] = ()
    if isinstance(value, SpecModel):
        fields = type(value).model_fields.items()
        inner = [(field.alias or name, getattr(value, name)) for name, field in fields]
        inner += (value.model_extra or {}).items()
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple):
        inner = enumerate(value)
    for key, part in inner:
        yield from parts_of(part, (*where, key))
