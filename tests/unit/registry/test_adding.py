"""What a person may write as the source of a version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError
from tidegate.testing import MemoryStore


class Noted(MlflowRegistry):
    """Says which way a source was taken, with what."""

    def adopt(self, name: str, reference: str, **_: Any) -> Any:
        return ("adopt", reference)

    def register(self, name: str, folder: Path, **_: Any) -> Any:
        return ("register", str(folder))

    def _register_run(self, name: str, run: str, path: str, *_: Any) -> Any:
        return ("run", run, path)


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("runs:/4f2c/model", ("run", "4f2c", "model")),
        ("runs:/4f2c/a/b/", ("run", "4f2c", "a/b")),
        ("runs:/4f2c", ("run", "4f2c", "")),
        ("./export", ("register", "export")),
        ("/srv/models/7", ("register", "/srv/models/7")),
        ("c:odd", ("register", "c:odd")),
        ("7", ("adopt", "7")),
        ("challenger", ("adopt", "challenger")),
    ],
)
def test_each_has_its_form(source: str, called: tuple[str, ...]) -> None:
    assert Noted(MemoryStore()).add("m", source) == called


@pytest.mark.parametrize("source", ["hf://a/b", "runs:/4f2c/../x", "s3://bucket/model", "models:/m/7"])
def test_what_looks_like_an_address_and_is_none_is_no_folder(source: str) -> None:
    with pytest.raises(UsageError, match="is no source of a model version; write a folder, such as the one that `hf"):
        MlflowRegistry(MemoryStore()).add("m", source)
