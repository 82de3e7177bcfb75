"""Single values of YAML files that people keep, by JSON pointer: read, and replaced where they stand.

Whatever else a file has stays byte for byte: comments, order, line ends. So a value has to be there already, as plain
or quoted text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

import yaml

from tidegate.core.spec import Problem, SpecError
from tidegate.core.yaml_text import TooMuch, all_composed

MARK = "\ufeff"
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_WRITTEN = "its value as plain or quoted text, written once by hand"
_INT, _NULL = "tag:yaml.org,2002:int", "tag:yaml.org,2002:null"


class FieldFile:
    """A YAML file of one or several documents."""

    def __init__(self, text: str, file: str) -> None:
        """`file` is its name in problems.

        Raises:
            SpecError: it is no YAML, or more than is read.
        """
        # Parsers do not count a byte order mark among a text's characters.
        self._begin = MARK if text.startswith(MARK) else ""
        self._text, self._file = text.removeprefix(MARK), file
        try:
            self._roots = all_composed(self._text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise self._error(mark.line + 1 if mark else 1, "", "no YAML", "YAML without templates in it") from error
        except TooMuch as error:
            raise self._error(1, "", error.found, error.expected) from error

    def value(self, pointer: str, *, within: str = "") -> str:
        """What stands there, as text.

        Args:
            pointer: to the value (RFC 6901).
            within: `KIND/NAME` of the document that has it; empty for the only one.

        Raises:
            SpecError: nothing is there, or a list or a mapping.
        """
        node = self._node(pointer, within)
        return "" if node.tag == _NULL else str(node.value)

    def replaced(self, pointer: str, value: str, *, within: str = "") -> str:
        """The whole text with another value there.

        Raises:
            SpecError: as `value`, or it is written in a way that cannot be replaced alone.
        """
        node = self._node(pointer, within)
        start, end = node.start_mark.index, node.end_mark.index
        raw, line = self._text[start:end], node.start_mark.line + 1
        if raw[:1] and raw[0] in "&!*|>":
            raise self._error(line, pointer, "an anchor, a tag or a block of text", _WRITTEN)
        if sum(each is node for root in self._roots for each in _nodes(root)) != 1:
            raise self._error(line, pointer, "a value that an alias repeats elsewhere", _WRITTEN)
        # A number stays one: who reads it may expect a number. A text has quotes, since parsers differ in the others.
        is_number = node.tag == _INT and not node.style and _NUMBER.fullmatch(value)
        written = value if is_number else json.dumps(value, ensure_ascii=False)
        return f"{self._begin}{self._text[:start]}{'' if raw else ' '}{written}{self._text[end:]}"

    def _node(self, pointer: str, within: str) -> yaml.ScalarNode:
        node: yaml.Node | None = self._roots[self._document(within, pointer)]
        line = node.start_mark.line + 1 if node else 1
        for part in pointer.split("/")[1:]:
            node = _child(node, part.replace("~1", "/").replace("~0", "~"))
            if node is None:
                raise self._error(line, pointer, "no such field", f"the field, with {_WRITTEN}")
            line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(line, pointer, "a list or a mapping", "a field with one value")
        return node

    def _document(self, within: str, pointer: str) -> int:
        """The place of the document that is meant."""
        named = [_identity(root) for root in self._roots]
        if within:
            if named.count(within) != 1:
                there = ", ".join(sorted({each for each in named if each})) or "none with a kind and a name"
                raise self._error(1, "", f"{named.count(within)} documents {within}", f"one; there are {there}")
            return named.index(within)
        if len(self._roots) != 1:
            expected = "one, or `object: KIND/NAME` that says which"
            raise self._error(1, pointer, f"{len(self._roots)} documents", expected)
        return 0

    def _error(self, line: int, path: str, found: str, expected: str) -> SpecError:
        return SpecError([Problem(self._file, line, path, found, expected)])


def _child(node: yaml.Node | None, part: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        is_place = part.isascii() and part.isdecimal() and len(part) < 9
        return node.value[int(part)] if is_place and int(part) < len(node.value) else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if isinstance(key, yaml.ScalarNode) and key.value == part), None)


def _identity(root: yaml.Node) -> str:
    """`KIND/NAME` of an object of Kubernetes; empty for anything else."""
    kind, name = _child(root, "kind"), _child(_child(root, "metadata"), "name")
    both = isinstance(kind, yaml.ScalarNode) and isinstance(name, yaml.ScalarNode)
    return f"{kind.value}/{name.value}" if both and kind and name else ""


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """All below it and itself; one that aliases repeat as often as it is there."""
    yield node
    inside = node.value if isinstance(node, yaml.CollectionNode) else ()
    for each in chain.from_iterable(inside) if isinstance(node, yaml.MappingNode) else inside:
        yield from _nodes(each)
