"""How our YAML looks: keys in our order, expressions of several lines as blocks, no line folded."""

from __future__ import annotations

import yaml

HEADER = "---\n# Written by tidegate from SLOs, with the rules of Sloth. Change the SLOs, not this file.\n\n"
_NEVER_FOLD = 2**31 - 1


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's where PyYAML was built with it."""

    def ignore_aliases(self, _data: object) -> bool:
        """Equal labels are written out each time: people search for them."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def written(document: dict[str, object], header: str = HEADER) -> str:
    """One YAML document below its header; others may follow it in the same file."""
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_NEVER_FOLD, allow_unicode=True)
    return f"{header}{body}"
