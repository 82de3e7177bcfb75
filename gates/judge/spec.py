"""The judge gate: which model judges answers, by which rubric, how often, and when it is to be believed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, JsonValue

from gates.evidence.batch import Dimension
from gates.model import Sample, Share
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration, Percent

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]

OURS = frozenset({"model", "messages", "stream", "n"})
"""Fields of a request that are not free to choose."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class JudgeControl(SpecModel):
    """What a judge must show before its scores may pass or fail a version."""

    share: Percent = Field(default=0.2, gt=0, le=1, validate_default=False)
    """Of the judged pairs: asked a second time with the answers swapped, and once more with a foil."""
    same_within: Share = 0.15
    """Composite scores that differ by less are the same."""
    min_asked: Sample = 20
    """Of each control; before that the judge is neither trusted nor refused."""
    min_self_agreement: Share = 0.7
    """Share of swapped repeats with the same opinion of canary against stable."""
    min_discrimination: Share = 0.8
    """Share of foils, answers to another prompt of which half plead with the judge, that score worse than the right
    answer."""
    min_answered: Share = 0.9
    """Share of questions that get scores: what a judge leaves out is no accident."""


class JudgeMargins(SpecModel):
    """How much worse than stable's a judge may find the canary's answers."""

    max_drop: Share = 0.1
    """Of the mean composite score, 0 to 1. The gate passes once the canary is proven to be within it."""
    tolerance: Share = 0.0
    """The gate fails once the canary's mean is proven to be lower than stable's by more than this."""
    min_pairs: Sample = 20
    """Judged before a pass."""


class JudgeGate(JudgeMargins):
    """The canary's mean composite score may be `max_drop` below the stable arm's at most."""

    name: ClassVar = "judge"

    endpoint: str = Field(pattern=r"^https?://[^\s/?#]+[^\s?#]*$")
    """Base address of an OpenAI-compatible interface, `/v1` included."""
    model: str = Field(min_length=1)
    api_key_env: str | None = None
    """Name of the environment variable with the key; without it none is sent."""
    sample: Percent = Field(default=0.05, gt=0, le=1, validate_default=False)
    """Of the pairs of answers."""
    dimensions: Mapping[Dimension, Weight] = Field(default=dict.fromkeys(Dimension, 1.0), min_length=1)
    """The weight of each in the composite score; one that is left out is not asked for."""
    control: JudgeControl = JudgeControl()
    parameters: Mapping[str, JsonValue] = {"temperature": 0, "max_tokens": 1024}
    """Further fields of each request, as this endpoint wants them."""
    timeout: Duration = timedelta(minutes=1)
    """For one reply."""
    retries: int = Field(default=4, ge=0, le=10)
    """Of a question that met 429, 5xx or silence, ever longer apart."""
    concurrency: Sample = 4
    """Questions under way at once."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What may not stand in a spec together, or at all; never tells what could be a key."""
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            found = "what is no name of a variable"
            yield SpecConflict(("api_key_env",), found, "a name such as JUDGE_API_KEY; the key itself stays outside")
        if "@" in urlsplit(self.endpoint).netloc:
            yield SpecConflict(("endpoint",), "a name or key before the host", "an address without; see `api_key_env`")
        if taken := sorted(OURS & self.parameters.keys()):
            yield SpecConflict(("parameters", taken[0]), "a field that tidegate fills", "other fields only")
        if self.tolerance >= self.max_drop:
            yield SpecConflict(("tolerance",), f"{self.tolerance:g}", f"less than max_drop, {self.max_drop:g}")
