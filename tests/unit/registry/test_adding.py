"""What a person may write as the source of a version."""

from __future__ import annotations

from typing import Any

import pytest

from registry import versions
from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError


class Noted:
    """Says which of a registry's methods was called, with what."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **_: (name, *map(str, args[1:]))


def added(source: str) -> Any:
    return MlflowRegistry.add(Noted(), "m", source, progress=lambda *_: None, tell=lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("runs:/4f2c/model", ("_add_run", "4f2c", "model")),
        ("runs:/4f2c/a/b/", ("_add_run", "4f2c", "a/b")),
        ("runs:/4f2c", ("_add_run", "4f2c", "")),
        ("./export", ("register", "export")),
        ("/srv/models/7", ("register", "/srv/models/7")),
        ("c:odd", ("register", "c:odd")),
        ("7", ("adopt", "7")),
        ("challenger", ("adopt", "challenger")),
    ],
)
def test_each_has_its_form(source: str, called: tuple[str, ...]) -> None:
    assert added(source) == called


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("hf://acme/llm", ("acme/llm", "main")),
        ("hf://acme/llm-1.5@v2", ("acme/llm-1.5", "v2")),
        ("hf://acme/llm@refs/pr/3", ("acme/llm", "refs/pr/3")),
    ],
)
def test_a_repository_of_the_hub_has_a_revision(
    source: str, place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "fetch_from_hub", lambda *place: ("uri", place[:2], {}))
    assert added(source) == ("register", str(place))


@pytest.mark.parametrize("source", ["hf://llm", "hf://a/b/c", "runs:/4f2c/../x", "s3://bucket/model", "models:/m/7"])
def test_what_looks_like_an_address_and_is_none_is_no_folder(source: str) -> None:
    with pytest.raises(UsageError, match="is no source of a model version; write a folder, runs:/RUN/PATH or hf://"):
        added(source)
