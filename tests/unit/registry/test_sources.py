"""What a person may write as the source of a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.sources import HubSource, RunSource, source_of
from tidegate.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hf://acme/llm", HubSource(repository="acme/llm")),
        ("hf://acme/llm-1.5@v2", HubSource(repository="acme/llm-1.5", revision="v2")),
        ("hf://acme/llm@refs/pr/3", HubSource(repository="acme/llm", revision="refs/pr/3")),
        ("runs:/4f2c/model", RunSource(run="4f2c", path="model")),
        ("runs:/4f2c/a/b/", RunSource(run="4f2c", path="a/b")),
        ("runs:/4f2c", RunSource(run="4f2c")),
        ("./export", Path("./export")),
        ("/srv/models/7", Path("/srv/models/7")),
        ("c:odd", Path("c:odd")),
    ],
)
def test_each_has_its_form(text: str, source: object) -> None:
    assert source_of(text) == source


@pytest.mark.parametrize("text", ["hf://llm", "hf://a/b/c", "runs:/4f2c/../x", "s3://bucket/model", "models:/m/7"])
def test_what_looks_like_an_address_and_is_none_is_no_folder(text: str) -> None:
    with pytest.raises(UsageError, match="is no source of a model version; write a folder, runs:/RUN/PATH or hf://"):
        source_of(text)


def test_a_run_is_written_as_mlflow_does() -> None:
    assert [RunSource(run="4f2c", path=path).uri for path in ("", "model")] == ["runs:/4f2c", "runs:/4f2c/model"]
