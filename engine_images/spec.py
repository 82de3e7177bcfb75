"""The `engine:` part of a delivery's spec: which vLLM serves the model version, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails

from engine_images.accelerators import DEVICES, Accelerator
from engine_images.arguments.check import wrong_arguments
from engine_images.arguments.model import ArgumentValue
from engine_images.arguments.rules import odd_arguments
from engine_images.arguments.schema import arguments_schema
from engine_images.arguments.serving import Serving, serving
from engine_images.pinned.catalogue import known_versions, pinned_vllm
from engine_images.sampling import SamplingSpec
from tidegate.core.model import Contradiction, SpecModel, at_odds

_MAPPING = TypeAdapter(dict[str, JsonValue])


class _ArgumentsSchema:
    """Shows editors the options of the newest vLLM that is known here."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        vllm = pinned_vllm(known_versions()[-1])
        return arguments_schema(vllm) if vllm else {"type": "object"}


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
    args: Annotated[Mapping[str, ArgumentValue], _ArgumentsSchema()] = {}
    """As on vLLM's command line, without the dashes: `max-model-len: 1024`; true and false are flags, a list is
    several values, a mapping is JSON."""

    @field_validator("args", mode="before")
    @classmethod
    def _as_vllm_takes_them(cls, args: object, info: ValidationInfo) -> object:
        """Each wrong argument is a problem of its own, with its own line."""
        values = _MAPPING.validate_python(args)
        wrong = list(wrong_arguments(values, pinned_vllm(str(info.data.get("version")))))
        if wrong:
            problems = [
                InitErrorDetails(type=at_odds(one.found, one.expected), loc=(one.name,), input=values[one.name])
                for one in wrong
            ]
            raise ValidationError.from_exception_data("args", problems)
        return values

    @property
    def serving(self) -> Serving:
        """What tidegate itself reasons about, in types."""
        return serving(self.args)

    def contradictions(self) -> Iterator[Contradiction]:
        """A vLLM that nobody has described, and arguments that vLLM refuses together."""
        if pinned_vllm(self.version) is None:
            known = ", ".join(known_versions())
            yield Contradiction(("version",), f"vLLM {self.version}", f"{known}, whose arguments are known here")
        for odd in odd_arguments(self.args):
            yield Contradiction(("args", odd.name), odd.found, odd.expected)


class CompileSpec(SpecModel):
    """How the model is compiled."""

    mode: CompileMode = CompileMode.DEFAULT
    warm: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)
    """Batch sizes that are asked once, while the engine is built and before it is ready after a start."""
    tolerance: float = Field(default=0.01, gt=0, le=1)
    """The largest difference between a compiled token's log-probability and the eager one's that a build accepts."""

    @field_validator("warm")
    @classmethod
    def _each_once(cls, warm: tuple[int, ...]) -> tuple[int, ...]:
        if not warm or list(warm) != sorted(set(warm)):
            raise ValueError("at least one batch size, each once, the smallest first")
        return warm


class EngineSettings(SpecModel):
    """How a model version is made ready to serve."""

    vllm: VllmSpec
    accelerator: Accelerator = Accelerator.CPU
    accelerator_count: int = Field(default=1, ge=1, le=1024)
    """How many of them one engine takes: the parallel sizes multiplied."""
    compile: CompileSpec = CompileSpec()
    sampling: SamplingSpec = SamplingSpec()

    def contradictions(self) -> Iterator[Contradiction]:
        """Parallel sizes that leave accelerators idle or need more, and precision that the accelerator lacks."""
        yield from _parallelism(self)
        yield from _precision(self)
        largest, allowed = self.compile.warm[-1], self.vllm.serving.max_num_seqs
        if allowed is not None and largest > allowed:
            expected = f"at most max-num-seqs ({allowed}): no more are answered at once"
            yield Contradiction(("compile", "warm"), str(largest), expected)


_NEVER_ON_CPU = ("enable-eplb", "enable-sleep-mode")
"""vLLM 0.32 refuses both there."""


def _parallelism(settings: EngineSettings) -> Iterator[Contradiction]:
    parallel = settings.vllm.serving.parallel
    if parallel.accelerators != settings.accelerator_count:
        sizes = {
            "tensor": parallel.tensor,
            "pipeline": parallel.pipeline,
            "data": parallel.data,
            "prefill-context": parallel.prefill_context,
        }
        product = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "no parallelism"
        yield Contradiction(
            ("accelerator_count",),
            f"{settings.accelerator_count} of {settings.accelerator} for {product}",
            f"{parallel.accelerators}",
        )
    for name in _NEVER_ON_CPU if settings.accelerator is Accelerator.CPU else ():
        if settings.vllm.args.get(name) is True:
            yield Contradiction(("vllm", "args", name), "true on a cpu", "an accelerator that vLLM can do it on")


def _precision(settings: EngineSettings) -> Iterator[Contradiction]:
    if settings.vllm.serving.dtype == "bfloat16" and not DEVICES[settings.accelerator].bfloat16:
        yield Contradiction(("vllm", "args", "dtype"), f"bfloat16 on {settings.accelerator}", "float16 or float32")
