"""Endpoints of a comparison, with their keys, and what reads their answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.adapters.openai_endpoint import OpenAIEndpoint, base_url, models_of, refuse_open_key
from gates.analyses.agreement import AgreementGate, Likeness
from gates.answers.golden import GoldenPrompt, scorers_of
from gates.comparison.comparison import EndpointComparison
from gates.comparison.model import ApiForm, Endpoint
from gates.comparison.plan import ComparisonPlan
from gates.judge.scored_pairs import ScoredPairs
from gates.model import Scorer
from pipelines.adapters.readers import embedder, languages, pair_judge
from tidegate.core.errors import UsageError
from tidegate.core.files import Unreadable, read_text


@dataclass(frozen=True)
class ArmOptions:
    """One arm as the options say it."""

    name: str
    """`stable` or `canary`: what its options begin with."""
    url: str
    model: str | None = None
    key_variable: str | None = None
    key_file: Path | None = None


def refuse_one_arm(stable: str | None, canary: str | None) -> None:
    """Raises UsageError when only one of two addresses is given."""
    if (stable is None) != (canary is None):
        missing = "--stable" if stable is None else "--canary"
        raise UsageError(f"{missing}: found nothing; expected the address of the other endpoint")


async def endpoint_of(arm: ArmOptions, api: ApiForm, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Where the arm is asked; without a name of its own it is asked for the one model that it serves.

    Raises:
        UsageError: the address is none, or the endpoint serves several models.
        OutsideError: it does not answer.
    """
    url = base_url(arm.url, f"--{arm.name}")
    if arm.model is not None:
        return Endpoint(url=url, model=arm.model, api=api)
    served = await models_of(url, key_of(arm, environment))
    if len(served) != 1:
        known = ", ".join(served[:10]) or "none"
        raise UsageError(f"{url} serves {len(served)} models: {known}", hint=f"name one: --{arm.name}-model")
    return Endpoint(url=url, model=served[0], api=api)


def key_of(arm: ArmOptions, environment: Mapping[str, str] = os.environ) -> str:
    """The arm's key; empty when it has none.

    Raises:
        UsageError: there is none where it should be, it is in two places, or it would go out without TLS.
    """
    if arm.key_variable and arm.key_file:
        raise UsageError(f"--{arm.name}-key-env and --{arm.name}-key-file", hint="give one of them")
    if arm.key_variable:
        key, place = environment.get(arm.key_variable, ""), f"--{arm.name}-key-env"
    elif arm.key_file:
        place = f"--{arm.name}-key-file"
        try:
            key = read_text(arm.key_file)
        except Unreadable as error:
            raise UsageError(f"{place} {arm.key_file}: {error}", hint="name a file with the key alone") from error
    else:
        return ""
    if not key.strip() or len(key.split()) != 1 or not key.isascii():
        # Neither its name nor its text: who mistook the option for the key's own place must not find it in a log.
        raise UsageError(f"{place}: no key is there", hint="it is one word, such as sk-...")
    refuse_open_key(base_url(arm.url, f"--{arm.name}"), place)
    return key.strip()


def endpoint_client(at: Endpoint, arm: ArmOptions, *, timeout_seconds: float) -> OpenAIEndpoint:
    """To be entered as a context."""
    return OpenAIEndpoint(at, key=key_of(arm), timeout_seconds=timeout_seconds)


def comparison_of(plan: ComparisonPlan, golden: Sequence[GoldenPrompt]) -> EndpointComparison:
    """With the readers that its gates and scorers need.

    Raises:
        UsageError: a prompt is scored by log-likelihood, which only a version's own engine tells.
    """
    scorers = scorers_of(golden, plan.quality.scorer)
    if Scorer.LOG_LIKELIHOOD in scorers:
        raise UsageError(
            f"the scorer {Scorer.LOG_LIKELIHOOD} asks vLLM itself, in the offline stage of a delivery",
            hint=f"use {Scorer.F1} or {Scorer.SEMANTIC} here",
        )
    agreements = [each for each in plan.pairs.settings.values() if isinstance(each, AgreementGate)]
    by_meaning = any(each.likeness is Likeness.MEANING for each in agreements)
    by_language = any(each.min_same_language is not None for each in agreements)
    return EndpointComparison(
        plan,
        golden,
        embedder=embedder() if Scorer.SEMANTIC in scorers else None,
        likeness=embedder() if by_meaning else None,
        languages=languages() if by_language else None,
    )


async def scores_of(plan: ComparisonPlan, folder: Path) -> ScoredPairs | None:
    """Who asks the plan's judge; None without one. `folder` is where its file of labels is."""
    if plan.judge is None:
        return None
    return ScoredPairs(await pair_judge(plan.judge, folder))
