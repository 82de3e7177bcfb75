"""Verdicts: what a gate says, from best to worst, always with its reason and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tidegate.core.model import Value
from tidegate.core.units import ShareText, share_too

_Number = Annotated[float, Field(ge=0, le=1)]


# Scores and shares: 0 to 1.
Share = Annotated[float, BeforeValidator(share_too, json_schema_input_type=_Number | ShareText), Field(ge=0, le=1)]


Sample = Annotated[int, Field(ge=1)]
StageKind = Literal["offline", "load", "shadow", "canary"]


class GateOutcome(IntEnum):
    """Ordered from best to worst, so that `max` of several is what they mean together."""

    PASS = 0
    """The sample suffices and the canary is within the margin."""
    RUNNING = 1
    """Too early to say; ask again while traffic flows."""
    INCONCLUSIVE = 2
    """The time is over and the evidence does not suffice. Never promotes."""
    ERROR = 3
    """The evidence could not be read. Says nothing about the version."""
    FAIL = 4
    """Worse than the margin, and chance is an unlikely reason."""

    def __str__(self) -> str:
        return self.name.lower()


def _by_name(outcome: object) -> object:
    if isinstance(outcome, str) and outcome.upper() not in GateOutcome.__members__:
        raise ValueError(f"found {outcome!r}; expected one of {', '.join(map(str, GateOutcome))}")
    return GateOutcome[outcome.upper()] if isinstance(outcome, str) else outcome


OutcomeName = Annotated[
    GateOutcome,
    BeforeValidator(_by_name),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"enum": [str(outcome) for outcome in GateOutcome]}),
]
"""An outcome by its name."""


class Verdict(Value):
    """One gate's answer at one moment."""

    gate: str
    outcome: OutcomeName
    reason: str
    """One sentence a person understands."""
    numbers: Mapping[str, float] = {}
    """What the sentence rests on; names carry their unit (`ttft_p95_canary_seconds`)."""
    auxiliary: Mapping[str, float] = {}
    """Auxiliary numbers, under other names: for charts. The sentence does not rest on them."""


def blind(reason: str) -> Verdict:
    """Nothing speaks against a canary of which nothing can be seen, and nothing for it."""
    return Verdict(gate="evidence", outcome=GateOutcome.ERROR, reason=reason)


def worst(outcomes: Iterable[GateOutcome]) -> GateOutcome:
    """What several outcomes mean together; no outcome at all is `INCONCLUSIVE`, never a pass."""
    return max(outcomes, default=GateOutcome.INCONCLUSIVE)


class ArmKey(Value):
    """Whose evidence: the version that plays one part in one region."""

    region: str
    role: str
    """`stable`, `canary`, or `shadow` for mirrored requests, which are counted apart from users' own."""
    version: str
    """Or labels that tell its series apart, as `app=chat,role=primary`."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Those labels; none where a version is named."""
        pairs = [each.partition("=") for each in self.version.split(",")]
        return {name: value for name, _, value in pairs} if all(equals for _, equals, _ in pairs) else {}

    def __str__(self) -> str:
        where = f" in {self.region}" if self.region else ""
        return f"{self.role} {'with' if self.labels else 'version'} {self.version}{where}"


class NoData(Value):
    """The source knows nothing of this arm in this window. It is neither 0 nor a pass."""

    reason: str
    """What was looked for, and where."""


class Counts(Value):
    """The requests that ended within a window."""

    total: int
    """Every request, whatever became of it."""
    failed: int
    """Of these, the server's fault: a 5xx, no answer at all, a stream that was cut."""
    refused: int = 0
    """Of these, answered 4xx: counted apart, because a user can cause it too."""


class Scorer(StrEnum):
    """How an answer is compared with the expected one; each gives 0 to 1."""

    CONTAINS = "contains"
    """1 when the expected words stand in the answer, together and in order."""
    EXACT = "exact"
    """1 when the answer has the expected words and no others."""
    NUMERIC = "numeric"
    """1 when the last number of the answer is the expected one."""
    F1 = "f1"
    """The share of words that both have, whatever their order."""


class ApiForm(StrEnum):
    """Which of OpenAI's interfaces is asked."""

    CHAT = "chat"
    """`/chat/completions`: the prompt is the user's message, and the endpoint applies its chat template."""
    COMPLETIONS = "completions"
    """`/completions`: the prompt is what the model continues."""


class ChatAnswer(Value):
    """What an engine answered to one prompt, and how fast."""

    text: str
    finish_reason: str
    """As the API says it: `stop` or `length`."""
    output_tokens: int | None
    ttft_seconds: float | None
    """None when nobody measured it. From sending the request to the first token."""
    duration_seconds: float | None = None
    """Until the last token."""
    tokens: tuple[int, ...] = ()
    """Themselves, where the engine was asked for them."""

    @property
    def itl_seconds(self) -> float | None:
        """Mean time between tokens; None when there were fewer than two."""
        if self.ttft_seconds is None or self.duration_seconds is None or (self.output_tokens or 0) < 2:
            return None
        return (self.duration_seconds - self.ttft_seconds) / ((self.output_tokens or 0) - 1)


class DifferingPrompt(Value):
    """A prompt whose two answers score differently, as a report shows it: texts in one line each, and cut."""

    prompt: str
    expected: str
    stable: str
    canary: str
    stable_score: float
    canary_score: float

    @property
    def drop(self) -> float:
        """How much lower the canary scores."""
        return self.stable_score - self.canary_score

    def __str__(self) -> str:
        texts = (_short(text) for text in (self.prompt, self.expected, self.stable, self.canary))
        prompt, expected, stable, canary = texts
        return (
            f"{self.canary_score:.2f} instead of {self.stable_score:.2f}  {prompt}: expected {expected}; "
            f"stable {stable}; canary {canary}"
        )


SHOWN = 48
"""Characters of a prompt or answer in a line for people."""


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
