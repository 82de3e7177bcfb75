"""YAML as we read and write it: no YAML 1.1 dates, bounded in size and depth, written with our key order and unfolded.

Anchors and aliases are allowed in what is read; what they expand to is counted, each node once, before anything is
made of it: a few bytes can say more than a machine can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

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
    """One YAML document, without a line that begins it."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_NEVER_FOLD, allow_unicode=True))


TIMESTAMP = "tag:yaml.org,2002:timestamp"


class PlainLoader(yaml.SafeLoader):
    """Without YAML 1.1's timestamps: 2026-02-30 is a wrong date, which can be told, and not an error inside PyYAML."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
