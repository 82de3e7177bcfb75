"""How our rule files begin."""

from __future__ import annotations

from tidegate.core.yaml_text import yaml_text

HEADER = "---\n# Written by tidegate from SLOs, with the rules of Sloth. Change the SLOs, not this file.\n\n"


def written(document: dict[str, object], header: str = HEADER) -> str:
    """One YAML document below its header; others may follow it in the same file."""
    return f"{header}{yaml_text(document)}"
