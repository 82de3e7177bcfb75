"""Shares and sample sizes as specs write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _share(value: Any) -> Any:
    """Scores live in 0..1, so `0.03` and `3pp` say the same."""
    if isinstance(value, str) and value.endswith("pp"):
        try:
            return float(value.removesuffix("pp")) / 100
        except ValueError as error:
            raise ValueError("a share such as 0.03, or 3pp") from error
    return value


# Scores and shares: 0 to 1.
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Sample = Annotated[int, Field(ge=1)]
