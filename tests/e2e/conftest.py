"""One machine for all stories of a file: the fleet stays up from one to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.given import Given
from e2e.machine import Machine
from e2e.story import Story
from e2e.then import Then
from e2e.when import When


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
