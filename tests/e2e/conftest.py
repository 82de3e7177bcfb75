"""One machine for all stories of a file: the fleet stays up from one to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from e2e.given import Given
from e2e.machine import Machine
from e2e.story import Story
from e2e.then import Then
from e2e.when import When
from fakes.engines.vllm_home import write_vllm_home

from engine_images.adapters.environment import HOME_VARIABLE, PYTHON_VARIABLE

REAL_ENGINES = "TIDEGATE_TEST_REAL_ENGINES"
"""Set by `make e2e`: every story is told with vLLM itself, also one that is about another service."""


@pytest.fixture(scope="module", autouse=True)
def engine_environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands and tests find: vLLM in files that are marked `engine`, a model that answers alike in others."""
    if request.node.get_closest_marker("engine") or os.environ.get(REAL_ENGINES):
        yield
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(PYTHON_VARIABLE, raising=False)
        patched.setenv(HOME_VARIABLE, str(write_vllm_home(tmp_path_factory.mktemp("environment") / "engine")))
        yield


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Its fleet is stopped at the end, and nothing may be left of it."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    stopped = machine.tidegate("fleet", "down")
    assert stopped.code == 0, stopped.err
    machine.nothing_runs()


@pytest.fixture
def story(machine: Machine) -> Iterator[Story]:
    story = Story(machine)
    yield story
    story.end()


@pytest.fixture
def given(story: Story) -> Given:
    return Given(story)


@pytest.fixture
def when(story: Story) -> When:
    return When(story)


@pytest.fixture
def then(story: Story) -> Then:
    return Then(story)
