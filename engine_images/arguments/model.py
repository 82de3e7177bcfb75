"""The arguments of a spec: names as on vLLM's command line, values as YAML has them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

ArgumentValue = JsonValue
"""Text, a number, true or false; a list for an option that takes several; a mapping where vLLM wants JSON."""

Arguments = Mapping[str, ArgumentValue]
"""By name, without the dashes in front: `max-model-len`."""
