"""The `engine:` part of a delivery's spec: which vLLM serves the model version, how, and with which sampling defaults.

Sampling defaults come from the version's `generation_config.json`, which is one of its files and so gated with it; the
spec may change some. vLLM reads the file by itself, so only the spec's own values go onto its command line: they are
part of the compile cache's key, and a delivery's versions share one spec but not one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, JsonValue, TypeAdapter, ValidationError, WithJsonSchema, field_validator
from pydantic_core import InitErrorDetails

from engine_images.accelerators import DEVICES, Accelerator
from engine_images.arguments.image import Prebuilt, WeightsSpec
from engine_images.arguments.serving import Serving, serving
from engine_images.arguments.validation import arguments_schema, wrong_arguments
from engine_images.arguments.values import KV_CACHE, UTILIZATION, ArgumentValue
from engine_images.choices import VLLM, CompileMode
from tidegate.core.model import SpecConflict, SpecModel, at_odds

PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_new_tokens": "max_tokens",
}
"""What vLLM takes from a generation config, and the name that requests use for it."""


class SamplingSpec(SpecModel):
    """Defaults that replace the version's own; what is not said stays as the version has it."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    """0 considers every token."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer to a request that names no limit."""

    @property
    def said(self) -> dict[str, int | float]:
        """Only what the spec says, by the name that requests use."""
        return self.model_dump(exclude_none=True)

    @property
    def generation_config(self) -> dict[str, JsonValue]:
        """The same for vLLM's `--override-generation-config`."""
        hugging_face = {ours: theirs for theirs, ours in PARAMETERS.items()}
        return {hugging_face[name]: value for name, value in self.said.items()}


_MAPPING = TypeAdapter(dict[str, JsonValue])


class VllmSpec(SpecModel):
    """The pinned vLLM and its arguments."""

    version: str
    """The one in the engine environment or in `engine.image`, exactly: another one answers and measures differently."""
    args: Annotated[Mapping[str, ArgumentValue], WithJsonSchema(arguments_schema())] = {}
    """As on vLLM's command line, without the dashes: `max-model-len: 1024`; true and false are flags, a list is
    several values, a mapping is JSON."""

    @field_validator("args", mode="before")
    @classmethod
    def _as_vllm_takes_them(cls, args: object) -> object:
        """Each wrong argument is a problem of its own, with its own line."""
        values = _MAPPING.validate_python(args)
        wrong = list(wrong_arguments(values))
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

    def contradictions(self) -> Iterator[SpecConflict]:
        """Sizes that no memory can be counted with; what else vLLM would not take, it says itself when it starts."""
        for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs"):
            if self.args.get(name) == 0:
                yield SpecConflict(("args", name), "0", "at least 1")
        share = self.args.get(UTILIZATION)
        if isinstance(share, int | float) and not 0 < share <= 1:
            yield SpecConflict(("args", UTILIZATION), str(share), "a share above 0 and at most 1")
        if {UTILIZATION, KV_CACHE} <= self.args.keys():
            # vLLM ignores it in silence.
            yield SpecConflict(("args", UTILIZATION), f"{UTILIZATION} together with {KV_CACHE}", "one of the two")


GPU_FLOOR = 0.95
"""A compiled engine that is slower than this share of eager's speed is not worth its start."""


class CompileSpec(SpecModel):
    """How the model is compiled."""

    mode: CompileMode = CompileMode.DEFAULT
    floor: float | None = Field(default=None, gt=0)
    """The smallest speedup over eager that a build accepts: 1 for one that is no slower. Absent, `GPU_FLOOR` on a GPU
    and none on a CPU."""
    warm: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)
    """Batch sizes that are asked once, while the engine is built and before it is ready after a start."""
    tolerance: float = Field(default=0.01, gt=0, le=1)
    """The largest difference of a token's log-probability between compiled and eager that a build accepts."""

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
    image: Prebuilt | None = None
    """Serve with this image as it is, by its own entrypoint, instead of one that `tidegate engine build` makes."""
    weights: WeightsSpec | None = None
    """Where an engine of `image` finds the version's files; brought from the registry when absent."""

    @property
    def floor(self) -> float | None:
        """The smallest speedup over eager that a build accepts, said or not. A CPU of several users is too noisy."""
        if self.compile.floor is not None or self.accelerator is Accelerator.CPU:
            return self.compile.floor
        return GPU_FLOOR

    @property
    def weights_place(self) -> WeightsSpec:
        """The same, with what holds when nothing is said."""
        return self.weights or WeightsSpec()

    def contradictions(self) -> Iterator[SpecConflict]:
        """Parallel sizes that leave accelerators idle or need more, and precision that the accelerator lacks."""
        if self.image is None and self.vllm.version != VLLM:
            # What keys the compile cache of another vLLM is not known.
            expected = f"{VLLM}, with which engines are built here; `engine.image` serves with any"
            yield SpecConflict(("vllm", "version"), f"vLLM {self.vllm.version}", expected)
        if self.image is None and self.weights:
            expected = "`engine.image`: an engine that is built here knows where its files are"
            yield SpecConflict(("weights",), "weights without an image of your own", expected)
        if self.image is not None and self.compile != CompileSpec(mode=self.compile.mode):
            expected = "`mode` alone: nothing is built, proven or warmed up in a prebuilt image"
            yield SpecConflict(("compile",), "more than `mode` with `engine.image`", expected)
        yield from _parallelism(self, self.vllm)
        if self.vllm.serving.dtype == "bfloat16" and not DEVICES[self.accelerator].bfloat16:
            yield SpecConflict(("vllm", "args", "dtype"), f"bfloat16 on {self.accelerator}", "float16 or float32")
        largest, allowed = self.compile.warm[-1], self.vllm.serving.max_num_seqs
        if allowed is not None and largest > allowed:
            expected = f"at most max-num-seqs ({allowed}): no more are answered at once"
            yield SpecConflict(("compile", "warm"), str(largest), expected)


def _parallelism(settings: EngineSettings, vllm: VllmSpec) -> Iterator[SpecConflict]:
    parallel = vllm.serving
    if parallel.accelerators != settings.accelerator_count:
        sizes = {
            "tensor": parallel.tensor,
            "pipeline": parallel.pipeline,
            "data": parallel.data,
            "prefill-context": parallel.prefill_context,
        }
        product = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "no parallelism"
        yield SpecConflict(
            ("accelerator_count",),
            f"{settings.accelerator_count} of {settings.accelerator} for {product}",
            f"{parallel.accelerators}",
        )
