"""YAML as we read and write it: plain scalars of YAML 1.2, bounded in size and depth, with our key order, unfolded.

Anchors and aliases are allowed in what is read; what they expand to is counted, each node once, before anything is
made of it: a few bytes can say more than a machine can hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor

_NEVER_FOLD = 2**31 - 1


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's where PyYAML was built with it."""

    def ignore_aliases(self, _data: object) -> bool:
        """Equal labels are written out each time: people search for them."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(document: Mapping[str, object]) -> str:
    """One YAML document, without a line that begins it.

    It is what libyaml writes. Of texts that are plainly plain we know how, and write them at a fraction of its cost.
    """
    if type(document) is not dict or not document:
        return by_libyaml(document)
    lines: list[str] = []
    _write_mapping(document, 0, "", lines)
    text = "".join(lines)
    # A last text that ends in empty lines keeps the document open, and only libyaml knows which one is the last.
    return by_libyaml(document) if "...\n" in text else text


def by_libyaml(document: object) -> str:
    """What libyaml writes; `yaml_text` writes the same, sooner."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_NEVER_FOLD, allow_unicode=True))


_PLAIN = re.compile(r"[A-Za-z_(](?:[!-~ ]*[!-9;-~])?")
"""Neither a number nor an indicator in front, neither a space nor a colon at the end."""
_LITERAL = re.compile(r"(?! )(?:[!-~ ]*[!-~]\n)+")
_UNLIKE_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_LONGEST_KEY = 100
"""In bytes; libyaml writes keys otherwise that are longer than 128."""


@lru_cache(100_000)
def _line(text: str) -> str | None:
    """A text of one line as libyaml writes it, plain or quoted, wherever it stands; None for any other."""
    if _PLAIN.fullmatch(text) and ": " not in text and " #" not in text and text.lower() not in _UNLIKE_TEXT:
        return text
    return by_libyaml([text])[len("- ") : -1] if text.isascii() and text.isprintable() else None


def _write_mapping(mapping: dict[str, object], depth: int, first: str, lines: list[str]) -> None:
    """`first` is what stands before the first key, where a list has begun on the same line."""
    indent = "  " * depth
    for key, value in mapping.items():
        start = first or indent
        first = ""
        if type(key) is not str or len(key) > _LONGEST_KEY or not (name := _line(key)):
            lines.append(start + _asked({key: value}, depth))
        elif type(value) is str and "\n" not in value and (text := _line(value)):
            lines.append(f"{start}{name}: {text}\n")
        elif type(value) is str and _LITERAL.fullmatch(value):
            text = value[:-1].replace("\n", f"\n{indent}  ")
            lines.append(f"{start}{name}: |\n{indent}  {text}\n")
        elif type(value) is dict and value:
            lines.append(f"{start}{name}:\n")
            _write_mapping(value, depth + 1, "", lines)
        elif type(value) is list and value:
            lines.append(f"{start}{name}:\n")
            _write_list(value, depth, "", lines)
        else:
            lines.append(start + _asked({key: value}, depth))


def _write_list(items: list[object], depth: int, first: str, lines: list[str]) -> None:
    indent = "  " * depth
    for item in items:
        start = f"{first or indent}- "
        first = ""
        if type(item) is str and (text := _line(item)):
            lines.append(f"{start}{text}\n")
        elif type(item) is dict and item:
            _write_mapping(item, depth + 1, start, lines)
        elif type(item) is list and item:
            _write_list(item, depth + 1, start, lines)
        else:
            lines.append(start + _asked([item], depth)[len("- ") :])


def _asked(part: dict[object, object] | list[object], depth: int) -> str:
    """What libyaml writes of a mapping or list at this depth, without the spaces in front."""
    # A list stands below its key without further spaces, and so one key deeper than a mapping at its place.
    above = depth + isinstance(part, list)
    whole: object = part
    for _ in range(above):
        whole = {"a": whole}
    return by_libyaml(whole)[sum(len("a:\n") + 2 * level for level in range(above)) + 2 * depth :]


class Unclear(str):
    """A text that stands without quotes and that YAML 1.1 reads as something else: `no`, `010`, `1_000`."""

    __slots__ = ()


_TAG = "tag:yaml.org,2002:"
UNCLEAR = "!unclear"
_SCALARS = (
    (f"{_TAG}bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
    (f"{_TAG}int", "-+0123456789", r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+)"),
    (
        f"{_TAG}float",
        "-+.0123456789",
        r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
    (UNCLEAR, "yYnNoO", r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"),
    (UNCLEAR, "-+0123456789", r"[-+]?(?:0[0-9_]+(?:\.[0-9_]*)?|[0-9][0-9_]*_[0-9_.]*|[0-9]+\.?[0-9]*[eE][-+]?[0-9]+)"),
)
"""Plain scalars of YAML 1.2, by what they may begin with: no number of base 60, such as 22:00, and no timestamp, such
as 2026-02-30. What 1.1, and with it Sloth, would take for another value is told apart."""


class PlainLoader(yaml.SafeLoader):
    """Reads plain scalars as YAML 1.2 does."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (f"{_TAG}null", f"{_TAG}merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _firsts, _pattern in _SCALARS:
    # A text that any reader takes for another value is quoted: Go's read `y` and `0E0` so, and PyYAML does not.
    _Dumper.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_firsts))
    for _first in _firsts:
        PlainLoader.yaml_implicit_resolvers.setdefault(_first, []).append((_tag, re.compile(f"^(?:{_pattern})$")))


if hasattr(yaml, "CSafeLoader"):

    class _QuickLoader(Composer, yaml.CSafeLoader):
        """libyaml's events, composed by Python: what is nested too deeply must not overflow the stack of C."""

        def __init__(self, text: str) -> None:
            """Each base sets up its own."""
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)

        yaml_implicit_resolvers = PlainLoader.yaml_implicit_resolvers

else:
    _QuickLoader = PlainLoader  # type: ignore[misc, assignment]


Composed = TypeVar("Composed")


def composed(text: str) -> yaml.Node | None:
    """The one document of a text, with its places; None of an empty text.

    Raises:
        yaml.YAMLError: it is no YAML, or more than one document.
    """
    return _composed(yaml.compose, text)


def all_composed(text: str) -> list[yaml.Node]:
    """As `composed`, each document of a text."""
    return _composed(lambda text, Loader: list(yaml.compose_all(text, Loader=Loader)), text)  # noqa: N803


def _composed(compose: Callable[..., Composed], text: str) -> Composed:
    try:
        return compose(text, Loader=_QuickLoader)
    except yaml.YAMLError:
        # PyYAML itself says better than libyaml what is wrong.
        return compose(text, Loader=PlainLoader)


class _Constructor(SafeConstructor):
    """Leaves nodes as they were: a merge writes the merged keys into them, and their places are told later."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[tuple[yaml.MappingNode, list[tuple[yaml.Node, yaml.Node]]]] = []

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        self.before.append((node, list(node.value)))
        super().flatten_mapping(node)

    def put_back(self) -> None:
        for node, pairs in reversed(self.before):
            node.value = pairs


def _unclear(_constructor: SafeConstructor, node: yaml.ScalarNode) -> Unclear:
    return Unclear(node.value)


_Constructor.add_constructor(UNCLEAR, _unclear)  # type: ignore[type-var]  # PyYAML's stubs want a loader
PlainLoader.add_constructor(UNCLEAR, _unclear)  # type: ignore[type-var]


def content_of(root: yaml.Node) -> object:
    """What a composed document says, in Python's own types.

    Raises:
        yaml.YAMLError: it says what cannot be, such as a list as a key.
    """
    constructor = _Constructor()
    try:
        return constructor.construct_document(root)
    finally:
        constructor.put_back()


MOST_CHARACTERS = 512 * 1024
"""Of a file; a golden set or prompts stand in files of their own."""
MOST_NODES = 200_000
"""Keys and values, aliases followed."""
DEEPEST = 100
"""Lists and mappings within each other."""


class TooMuch(ValueError):
    """The text says more than it may; `found` and `expected` are for a sentence."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}; expected {expected}")
        self.found, self.expected = found, expected


def require_bounded(text: str) -> None:
    """Be sure that a text is short enough to be read.

    Raises:
        TooMuch: it is not.
    """
    if len(text) > MOST_CHARACTERS:
        raise TooMuch("a larger file", f"at most {MOST_CHARACTERS // 1024} KiB")


def too_deep() -> TooMuch:
    """Also what a parser that gave up in the middle means."""
    return TooMuch("lists and mappings within each other", f"at most {DEEPEST} levels")


def require_countable(root: yaml.Node | None) -> None:
    """Be sure that what a composed document comes to can be walked.

    Raises:
        TooMuch: an alias leads to itself, or all of them to more than can be read.
    """
    if root is not None and _count(root, {}, ()) > MOST_NODES:
        raise TooMuch("aliases of aliases", f"at most {MOST_NODES:,} values once they are followed")


def _count(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    if id(node) in above:
        raise TooMuch("an alias within what it stands for", "values that end")
    if len(above) > DEEPEST:
        raise too_deep()
    if id(node) not in known:
        inside = (*above, id(node))
        known[id(node)] = 1 + sum(_count(child, known, inside) for child in _children(node))
    return known[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
