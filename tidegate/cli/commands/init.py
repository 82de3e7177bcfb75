"""`tidegate init`: a delivery to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tidegate.cli.commands.schema import schema_text
from tidegate.cli.whole_files import write_whole
from tidegate.core.errors import UsageError

TEMPLATES = ("delivery.yaml", "golden.jsonl", "prompts.txt")


def run(folder: Path) -> int:
    """Write the templates and the schema that editors check them with.

    Raises:
        UsageError: when a file is already there, or cannot be written; nothing is written then.
    """
    texts = {name: files("tidegate.cli.templates").joinpath(name).read_text(encoding="utf-8") for name in TEMPLATES}
    texts["delivery.schema.json"] = schema_text("delivery")
    existing = [name for name in texts if (folder / name).exists()]
    if existing:
        raise UsageError(f"{folder / existing[0]} is already there", hint="name an empty folder")
    write_whole({folder / name: text for name, text in texts.items()})
    print(*(folder / name for name in texts), sep="\n")
    return 0
