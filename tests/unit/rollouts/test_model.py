"""What a fleet may be asked to run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rollouts.model import Engine


def test_an_engine_is_an_image_or_a_command() -> None:
    assert Engine(version="7", digest="d", model="support-llm", image="registry.example/engine@sha256:7").command == ()
    assert Engine(version="7", digest="d", model="support-llm", command=("serve",)).image == ""


@pytest.mark.parametrize("what", [{}, {"image": "registry.example/engine@sha256:7", "command": ("serve",)}])
def test_it_is_never_neither_and_never_both(what: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="either an image or a command"):
        Engine.model_validate({"version": "7", "digest": "d", "model": "support-llm"} | what)
