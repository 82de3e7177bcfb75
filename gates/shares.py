"""Shares and sample sizes as specs write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from tidegate.core.quantities import ShareText, share_too

_Number = Annotated[float, Field(ge=0, le=1)]
# Scores and shares: 0 to 1.
Share = Annotated[float, BeforeValidator(share_too, json_schema_input_type=_Number | ShareText), Field(ge=0, le=1)]
Sample = Annotated[int, Field(ge=1)]
