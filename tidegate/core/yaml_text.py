"""YAML as we read and write it: plain scalars of YAML 1.2, bounded in size and depth, with our key order, unfolded.

Anchors and aliases are allowed in what is read; what they expand to is counted, each node once, before anything is
made of it: a few bytes can say more than a machine can hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

import yaml
from yaml.constructor import SafeConstructor

_NEVER_FOLD = 2**31 - 1


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's where PyYAML was built with it."""

    def ignore_aliases(self, _data: object) -> bool:
        """Equal labels are written out each time: people search for them."""
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def yaml_text(document: Mapping[str, object]) -> str:
    """One YAML document, without a line that begins it."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_NEVER_FOLD, allow_unicode=True))


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


def all_composed(text: str) -> list[yaml.Node]:
    """The documents of a text, with their places, each of which can be walked to its end.

    Raises:
        yaml.YAMLError: it is no YAML.
        TooMuch: it is too long or too deep, an alias leads to itself, or all of them to more than can be read.
    """
    if len(text) > MOST_CHARACTERS:
        raise TooMuch("a larger file", f"at most {MOST_CHARACTERS // 1024} KiB")
    try:
        roots = list(yaml.compose_all(text, Loader=PlainLoader))
    except RecursionError:
        raise _too_deep() from None
    if any(_count(root, {}, ()) > MOST_NODES for root in roots):
        raise TooMuch("aliases of aliases", f"at most {MOST_NODES:,} values once they are followed")
    return roots


def _too_deep() -> TooMuch:
    return TooMuch("lists and mappings within each other", f"at most {DEEPEST} levels")


def _count(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    if id(node) in above:
        raise TooMuch("an alias within what it stands for", "values that end")
    if len(above) > DEEPEST:
        raise _too_deep()
    if id(node) not in known:
        inside = node.value if isinstance(node, yaml.CollectionNode) else ()
        children = chain.from_iterable(inside) if isinstance(node, yaml.MappingNode) else inside
        known[id(node)] = 1 + sum(_count(child, known, (*above, id(node))) for child in children)
    return known[id(node)]


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
