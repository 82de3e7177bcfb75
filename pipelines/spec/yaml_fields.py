"""Single fields of YAML files that people keep: read, and replaced where they stand.

Whatever else a file has stays byte for byte: comments, order, quotes, line ends. So a field has to be there already,
with a plain or quoted text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from tidegate.core.spec import Problem, SpecError
from tidegate.core.yaml_text import TooMuch, all_composed, require_bounded, require_countable

ADDRESS = 'such as `image.digest`, `images[name=NAME].digest` or `metadata.labels["example.com/key"]`'
"""In words."""
MARK = "\ufeff"
_PART = re.compile(
    r"""\.?(?P<key>[^.\[\]"'\s=]+)
      | \[(?P<index>\d+)\]
      | \[(?P<name>[A-Za-z_][\w-]*)=(?P<value>[^\]\s]+)\]
      | \["(?P<quoted>[^"\]]+)"\]""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[\w/]|[\w/][\w./@:+-]*[\w./+-]", re.ASCII)
"""Texts in which no parser finds anything but a text or a number, such as references of images."""
_UNLIKE_TEXT = re.compile(r"[0-9].*|y|n|yes|no|on|off|true|false|null", re.IGNORECASE)
"""Of them, what some parser takes for something else than a text."""
_WRITTEN = "its value as plain or quoted text, written once by hand"
_STR, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class Item:
    """An item of a list, by what one of its keys says."""

    key: str
    value: str


Part = str | int | Item
"""A key, a place in a list from 0, or the item of a list that says something."""


def address_of(text: str) -> tuple[Part, ...]:
    """The parts of a field's address.

    Raises:
        ValueError: it is none.
    """
    parts: list[Part] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if not found or (at == 0 and text.startswith(".")):
            raise ValueError(f"no address of a field, {ADDRESS}")
        parts.append(_part(found))
        at = found.end()
    if not parts:
        raise ValueError(f"no address of a field, {ADDRESS}")
    return tuple(parts)


def _part(found: re.Match[str]) -> Part:
    if found["index"] is not None:
        return int(found["index"])
    if found["name"] is not None:
        return Item(found["name"], found["value"])
    return found["key"] if found["key"] is not None else found["quoted"]


class FieldFile:
    """A YAML file of one or several documents, by its fields."""

    def __init__(self, text: str, file: str) -> None:
        """`file` is its name in problems.

        Raises:
            SpecError: it is no YAML, or more than is read.
        """
        # Parsers do not count a byte order mark among a text's characters.
        self._begin = MARK if text.startswith(MARK) else ""
        text = text.removeprefix(MARK)
        self._text, self._file = text, file
        try:
            require_bounded(text)
            self._roots = all_composed(text)
            for root in self._roots:
                require_countable(root)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise self._error(mark.line + 1 if mark else 1, "", "no YAML", "YAML without templates in it") from error
        except (TooMuch, RecursionError) as error:
            found, expected = (error.found, error.expected) if isinstance(error, TooMuch) else ("too deep", "less")
            raise self._error(1, "", found, expected) from error

    def value(self, field: str, *, within: str = "") -> str:
        """What a field says, as text.

        Args:
            field: its address.
            within: `KIND/NAME` of the document that has it; empty for the only one.

        Raises:
            SpecError: there is no such field, or it holds a list or a mapping.
        """
        node = self._node(field, within)
        return "" if node.tag == _NULL else str(node.value)

    def replaced(self, field: str, value: str, *, within: str = "") -> str:
        """The whole text with another value of one field.

        Raises:
            SpecError: as `value`, or the field is written in a way that cannot be replaced alone.
        """
        node = self._node(field, within)
        start, end = node.start_mark.index, node.end_mark.index
        raw = self._text[start:end]
        if raw[:1] and raw[0] in "&!*|>":
            raise self._error(node.start_mark.line + 1, field, "an anchor, a tag or a block of text", _WRITTEN)
        text = self._text[:start] + (_rewritten(raw, value, node) if raw else f" {_fresh(value)}") + self._text[end:]
        self._refuse_side_effect(text, field, value, within)
        return self._begin + text

    def _refuse_side_effect(self, text: str, field: str, value: str, within: str) -> None:
        """Be sure that the new text says the same as the old one, but for the field."""
        changed, node = FieldFile(text, self._file), self._node(field, within)
        said = changed._node(field, within)
        before, after = _Shape(self._roots, node), _Shape(changed._roots, said)
        if said.value != value or before.others != after.others or (before.times, after.times) != (1, 1):
            raise self._error(node.start_mark.line + 1, field, "a value that an alias repeats elsewhere", _WRITTEN)

    def _node(self, field: str, within: str) -> yaml.ScalarNode:
        node: yaml.Node | None = self._roots[self._document(within, field)]
        line = node.start_mark.line + 1 if node else 1
        for part in address_of(field):
            node = _child(node, part)
            if node is None:
                raise self._error(line, field, "no such field", f"the field, with {_WRITTEN}")
            line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(line, field, "a list or a mapping", "a field with one value")
        return node

    def _document(self, within: str, field: str) -> int:
        """The place of the document that is meant."""
        named = [_identity(root) for root in self._roots]
        if within:
            if named.count(within) != 1:
                there = ", ".join(sorted({each for each in named if each})) or "none with a kind and a name"
                raise self._error(1, "", f"{named.count(within)} documents {within}", f"one; there are {there}")
            return named.index(within)
        if len(self._roots) != 1:
            expected = "one, or `object: KIND/NAME` that says which"
            raise self._error(1, field, f"{len(self._roots)} documents", expected)
        return 0

    def _error(self, line: int, path: str, found: str, expected: str) -> SpecError:
        return SpecError([Problem(self._file, line, path, found, expected)])


def with_values(text: str, values: Mapping[str, str], *, file: str, within: str = "") -> str:
    """The text with these values of its fields, by their addresses.

    Raises:
        SpecError: as `FieldFile`.
    """
    for field, value in values.items():
        there = FieldFile(text, file)
        if there.value(field, within=within) != value:
            text = there.replaced(field, value, within=within)
    return text


def _child(node: yaml.Node | None, part: Part) -> yaml.Node | None:
    if isinstance(part, str):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        return next((value for key, value in pairs if isinstance(key, yaml.ScalarNode) and key.value == part), None)
    items: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(part, int):
        return items[part] if part < len(items) else None
    return next((each for each in items if _says(each, part)), None)


def _says(item: yaml.Node, wanted: Item) -> bool:
    said = _child(item, wanted.key)
    return isinstance(said, yaml.ScalarNode) and said.value == wanted.value


def _identity(root: yaml.Node) -> str:
    """`KIND/NAME` of an object of Kubernetes; empty for anything else."""
    kind, name = _child(root, "kind"), _child(_child(root, "metadata"), "name")
    both = isinstance(kind, yaml.ScalarNode) and isinstance(name, yaml.ScalarNode)
    return f"{kind.value}/{name.value}" if both and kind and name else ""


def _rewritten(raw: str, value: str, node: yaml.ScalarNode) -> str:
    """In the quotes of before; a text that has none gets some where it would be something else without."""
    if raw[0] == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if raw[0] == '"':
        return json.dumps(value, ensure_ascii=False)
    # A number that stays one keeps its form: who reads it may expect a number.
    return value if node.tag not in (_STR, _NULL) and _reads_as(value, node.tag) else _fresh(value)


def _fresh(value: str) -> str:
    is_text = _reads_as(value, _STR) and not _UNLIKE_TEXT.fullmatch(value)
    return value if is_text else json.dumps(value, ensure_ascii=False)


def _reads_as(value: str, tag: str) -> bool:
    """Whether a text without quotes is itself, wherever it stands."""
    if not _PLAIN.fullmatch(value):
        return False
    (root,) = all_composed(f"[{value}]")
    (one,) = root.value
    return (one.tag, one.value) == (tag, value)


class _Shape:
    """What documents say, every alias written out, but for one node of them."""

    def __init__(self, roots: Sequence[yaml.Node], without: yaml.Node) -> None:
        self._without = without
        self.times = 0
        """How often that one stands in them."""
        self.others = [self._of(root) for root in roots]

    def _of(self, node: yaml.Node) -> object:
        if node is self._without:
            self.times += 1
            return None
        if isinstance(node, yaml.MappingNode):
            return [(self._of(key), self._of(value)) for key, value in node.value]
        return (
            [self._of(each) for each in node.value] if isinstance(node, yaml.SequenceNode) else (node.tag, node.value)
        )
