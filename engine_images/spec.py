"""The `engine:` part of a delivery's spec: which vLLM serves the model version, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tidegate.core.model import SpecModel

ArgumentValue = bool | int | float | str

RESERVED = {
    "address": ("host", "port", "uds", "root-path", "api-server-count", "headless", "served-model-name"),
    "registered model version": ("model", "model-tag", "tokenizer", "hf-config-path", "revision", "chat-template"),
    "rule that no code or pickle of a model version is run": ("trust-remote-code", "load-format"),
    "rest of the spec": ("enforce-eager", "config"),
    "way an engine is watched and stopped": ("shutdown-timeout", "enable-tokenizer-info-endpoint", "api-key"),
}
"""Arguments of vLLM that follow from something else; a spec that set them would contradict it."""

_OWNERS = {argument: owner for owner, arguments in RESERVED.items() for argument in arguments}
_NAME = re.compile(r"[a-z][a-z0-9]*([-.][a-z0-9]+)*")


def _argument_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError("an argument as vLLM writes it, without the dashes in front: max-model-len")
    owner = _OWNERS.get(name.removeprefix("no-"))
    if owner is not None:
        raise ValueError(f"an argument of vLLM that tidegate does not set itself; this one follows from the {owner}")
    return name


def _argument_value(value: Any) -> ArgumentValue:
    if not isinstance(value, ArgumentValue):
        raise ValueError("text, a number, true or false")  # noqa: TRY004 (pydantic reports no TypeError)
    return value


ArgumentName = Annotated[str, AfterValidator(_argument_name)]
Argument = Annotated[
    ArgumentValue,
    BeforeValidator(_argument_value),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


class Accelerator(StrEnum):
    """What an engine computes on."""

    CPU = "cpu"
    """The one that the pinned engine environment is built for."""


class CompileMode(StrEnum):
    """Whether vLLM compiles the model before it serves."""

    DEFAULT = "default"
    """Compile, and keep the result: faster answers, a slow first start, later starts from the cache."""
    NONE = "none"
    """Run eagerly: the fastest start."""


class VllmSpec(SpecModel):
    """The pinned vLLM and its arguments."""

    version: str
    """The one in the engine environment, exactly: another one answers and measures differently."""
    args: Mapping[ArgumentName, Argument] = {}
    """As on vLLM's command line, without the dashes: `max-model-len: 1024`; true and false are flags."""


class CompileSpec(SpecModel):
    """How the model is compiled."""

    mode: CompileMode = CompileMode.DEFAULT


class EngineSettings(SpecModel):
    """How a model version is made ready to serve."""

    vllm: VllmSpec
    accelerator: Accelerator = Accelerator.CPU
    compile: CompileSpec = CompileSpec()
