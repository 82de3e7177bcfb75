"""Whether the compiled model is the same model: log-probabilities of the same tokens, compiled against eager.

Tokens are no measure. Two that are nearly as likely change places for a difference in the last bit, and
everything after them is another text. So the tokens of a prompt are compared, which both are given, and of
an answer those up to the first that differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pydantic import Field

from tidegate.core.model import Value


class Scored(Value):
    """One prompt and its greedy answer as one engine scored them."""

    prompt: tuple[float, ...]
    """Log-probability of each token of the prompt but the first, which follows nothing."""
    answer: tuple[str, ...]
    """The tokens of the answer."""
    logprobs: tuple[float, ...]
    """Of the answer's tokens."""


class Agreement(Value):
    """How far two engines are apart in the natural logarithm of probabilities."""

    prompts: int
    tokens: int = Field(ge=1)
    """Compared."""
    largest: float
    """The largest difference of all tokens."""
    p99: float
    """The 99th percentile of the differences: the smallest that 99 % of them do not exceed."""
    answers_alike: int
    """Answers that are the same from the first token to the last."""

    def within(self, tolerance: float) -> bool:
        """Whether no token differs by more."""
        return self.largest <= tolerance


def compare(eager: Sequence[Scored], compiled: Sequence[Scored]) -> Agreement:
    """Both scored the same prompts, in the same order.

    Raises:
        ValueError: when they did not, or when there was nothing to compare.
    """
    differences = sorted(
        difference for one, other in zip(eager, compiled, strict=True) for difference in _differences(one, other)
    )
    if not differences:
        raise ValueError("no token was scored by both")
    return Agreement(
        prompts=len(eager),
        tokens=len(differences),
        largest=differences[-1],
        p99=differences[math.ceil(0.99 * len(differences)) - 1],
        answers_alike=sum(one.answer == other.answer for one, other in zip(eager, compiled, strict=True)),
    )


def _differences(eager: Scored, compiled: Scored) -> Iterator[float]:
    if len(eager.prompt) != len(compiled.prompt):
        raise ValueError(f"a prompt of {len(eager.prompt)} tokens has {len(compiled.prompt)} with the other engine")
    for one, other in zip(eager.prompt, compiled.prompt, strict=True):
        yield abs(one - other)
    answers = zip(eager.answer, compiled.answer, eager.logprobs, compiled.logprobs, strict=False)
    for token, other_token, one, other in answers:
        if token != other_token:
            return
        yield abs(one - other)
