"""Words that reports for CI share."""

from __future__ import annotations

from pipelines.story import Story
from pipelines.wording import headline


def title(story: Story) -> str:
    """What was to be delivered; of one that never began nothing more is known."""
    return f"{story.model} {story.version}" if story.started else "tidegate"


def sentence(story: Story) -> str:
    """How it ended, in one line."""
    return headline(story) if story.started else "Nothing was begun"


def broken_off(story: Story, reason: str) -> Story:
    """The story of a delivery that an error ended before its ledger could be closed, or before anything began."""
    if story.outcome is not None:
        return story
    return story.model_copy(update={"outcome": "failed" if story.started else "refused", "reason": reason})
