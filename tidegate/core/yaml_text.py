"""How our YAML looks: keys in our order, texts of several lines as blocks, no line folded, nothing abbreviated."""

from __future__ import annotations

from collections.abc import Mapping

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
