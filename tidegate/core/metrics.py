"""`metrics.sources` of a spec: which series of a Prometheus tell what gates, SLOs and dashboards ask, and of whom.

Gates, SLO rules and dashboards read the same names, by preset (`presets.yaml`), by hand, or both, so that a team says
once what its own Prometheus has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.yaml_text import all_composed, content_of

MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
VERSION_PLACE = "{version}"
"""In a label's value: where the version's number stands."""


class MetricSignal(StrEnum):
    """What a source may tell of a version."""

    REQUESTS = "requests"
    """How many, and what became of them."""
    TTFT = "ttft"
    ITL = "itl"
    E2E = "e2e"
    QUEUE_TIME = "queue_time"
    ENGINES = "engines"
    """What only an engine knows of itself: tokens, batches, its KV cache."""


TIMES = (MetricSignal.TTFT, MetricSignal.ITL, MetricSignal.E2E, MetricSignal.QUEUE_TIME)
"""Those that are histograms of one time for each request."""
_BY_HAND = (MetricSignal.REQUESTS, *TIMES)


class PresetName(StrEnum):
    """Whose metrics."""

    VLLM = "vllm"
    LLM_D_INFERENCE_SIM = "llm-d-inference-sim"
    SGLANG = "sglang"
    TGI = "tgi"
    TRITON = "triton"
    ISTIO = "istio"
    ENVOY_GATEWAY = "envoy-gateway"
    NGINX = "nginx"


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]
"""Of a label's whole value, as `=~` of PromQL has it."""


def fits(labels: Mapping[str, str], matchers: Mapping[str, str]) -> bool:
    """Whether a series with these labels is one of those that `matchers` select; a label that is absent is empty."""
    return all(re.fullmatch(pattern, labels.get(name, "")) for name, pattern in matchers.items())


class RequestSeries(SpecModel):
    """A counter of requests by the status of their answers."""

    metric: MetricName
    status: LabelName
    """The label that says it: `503`, or a class such as `5xx`."""
    match: Mapping[LabelName, Pattern] = {}
    """Which of its series are requests of users."""
    broken: Mapping[LabelName, Pattern] = {}
    """Which of its series failed whatever their status says, such as streams that were cut."""
    cut: MetricName | None = None
    """A counter of connections that broke under a request; those before the headers are a 503 as well."""
    timeouts: MetricName | None = None
    """A counter of requests that took too long; those before the headers are a 504 as well."""


class TimeSeries(SpecModel):
    """A histogram with one time for each request."""

    metric: MetricName
    """Without `_bucket`."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    match: Mapping[LabelName, Pattern] = {}
    """Which of its series are answered requests of users."""
    edges: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Upper ends of its buckets in `unit`, without the infinite one; an SLO needs to know them, a gate does not."""

    @property
    def seconds(self) -> float:
        """How long its unit is."""
        return {"seconds": 1.0, "milliseconds": 0.001}[self.unit]


ArmValue = Annotated[str, Field(pattern=r"^([^{}]|\{version\})*$", max_length=500)]


class ArmLabels(SpecModel):
    """By which value of a label a series is one of stable or of the canary; `{version}` is the version's number."""

    label: LabelName | None = None
    """The preset's when absent."""
    stable: ArmValue
    canary: ArmValue
    shadow: ArmValue | None = None
    """Of copies of requests, where they are counted; a stage that copies needs it."""


class SourceNames(SpecModel):
    """What is said of a source by a preset, by hand, or by both."""

    match: Mapping[LabelName, Pattern] = {}
    """What all of its series have."""
    requests: RequestSeries | None = None
    ttft: TimeSeries | None = None
    """Time to first token."""
    itl: TimeSeries | None = None
    """Mean time between tokens of one request."""
    e2e: TimeSeries | None = None
    """Time to the last token."""
    queue_time: TimeSeries | None = None
    """Time that a request waits in an engine."""


class Preset(SourceNames):
    """What a source of one kind of exporter has."""

    label: str = ""
    """Tells arms apart, where nobody says another one; empty for the labels of our own scrape."""
    pod: str = ""
    """Tells the engines of an arm apart; empty where it is unknown."""
    engines: bool = False
    """Whether it also tells what only an engine knows."""
    cache: tuple[MetricName, ...] = ()
    """Counters of prompts' tokens: what came from the prefix cache, and all."""


@cache
def presets() -> Mapping[PresetName, Preset]:
    """All that there are."""
    (root,) = all_composed(Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8"))
    found: Mapping[str, object] = content_of(root)  # type: ignore[assignment]  # our own file
    return {PresetName(name): Preset.model_validate(said) for name, said in found.items()}


class MetricSource(SourceNames):
    """One kind of series in a Prometheus; what it says by hand goes before its preset."""

    preset: PresetName | None = None
    signals: tuple[MetricSignal, ...] = ()
    """What is read of it; everything that it has when absent."""
    arms: ArmLabels | None = None
    """Absent with preset vllm for engines that tidegate's own monitors scrape."""
    region: LabelName | None = None
    """The label that holds the region's name; absent where each region has a Prometheus of its own."""
    pod: LabelName | None = None
    """The label that tells the engines of an arm apart: their spread weakens evidence. Not a gateway's own pod."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A source without a metric, or whose arms nobody can tell apart."""
        if not self._all:
            names = ", ".join(PresetName)
            yield SpecConflict((), "no metric", f"a `preset` ({names}), or metrics at {', '.join(_BY_HAND)}")
            return
        for place, signal in enumerate(self.signals):
            if signal not in self._all:
                found = f"{signal}, which this source does not have"
                yield SpecConflict(("signals", place), found, f"one of {', '.join(self._all)}")
        if self.arms is None:
            if not self.has_own_labels:
                yield SpecConflict(("arms",), "nothing", "the values of a label: {stable: VALUE, canary: VALUE}")
            return
        if not self.arm_label:
            yield SpecConflict(("arms", "label"), "nothing", "the label that tells stable from canary")
        if self.arms.stable == self.arms.canary and VERSION_PLACE not in self.arms.canary:
            expected = f"another value than stable's, or {VERSION_PLACE} in both"
            yield SpecConflict(("arms", "canary"), f"'{self.arms.canary}'", expected)

    @property
    def _preset(self) -> Preset:
        return presets()[self.preset] if self.preset else Preset()

    @property
    def _all(self) -> tuple[MetricSignal, ...]:
        """What it could tell."""
        return tuple(each for each in MetricSignal if getattr(self, each, None) or getattr(self._preset, each))

    @property
    def told(self) -> tuple[MetricSignal, ...]:
        """What is read of it."""
        return tuple(each for each in self._all if not self.signals or each in self.signals)

    @property
    def has_own_labels(self) -> bool:
        """Whether its series have the labels of our own scrape configuration: service, region, role and version."""
        return self.arms is None and self.preset is PresetName.VLLM

    @property
    def arm_label(self) -> str:
        """The label that tells arms apart; empty where it is not known, or where ours do."""
        return (self.arms and self.arms.label) or self._preset.label

    @property
    def names_roles(self) -> bool:
        """Whether the label's value says stable or canary whatever versions they are."""
        return self.arms is None or VERSION_PLACE not in self.arms.stable + self.arms.canary

    @property
    def region_label(self) -> str:
        """Empty where no label holds the region."""
        return self.region or ("region" if self.has_own_labels else "")

    @property
    def pod_label(self) -> str:
        """Empty where engines of an arm are not told apart."""
        return self.pod or self._preset.pod

    @property
    def matchers(self) -> Mapping[str, str]:
        """What all of its series have, as regular expressions."""
        return {**self._preset.match, **self.match}

    @property
    def request_series(self) -> RequestSeries | None:
        """None where its requests are not read."""
        return (self.requests or self._preset.requests) if MetricSignal.REQUESTS in self.told else None

    def time_series(self, signal: MetricSignal) -> TimeSeries | None:
        """The histogram of one of `TIMES`; None where it is not read here."""
        by_hand: TimeSeries | None = getattr(self, signal)
        return (by_hand or getattr(self._preset, signal)) if signal in self.told else None

    def is_vllms_own(self, signal: MetricSignal) -> bool:
        """Whether the signal is read under the name that vLLM gives it."""
        return self.preset is PresetName.VLLM and getattr(self, signal, None) is None

    def labels_of(
        self, *, service: str, region: str, role: str, version: str, own: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """By which an arm's series are selected, besides `matchers`; what is empty is not asked.

        `version` may be a place to be filled later. Labels of its `own` are asked in place of it.
        """
        labels = {"service": service} if self.has_own_labels and service else {}
        if self.region_label and region:
            labels[self.region_label] = region
        if own:
            return {**labels, **own}
        if self.arms is None:
            # An engine does not know that what it answers are copies.
            return {**labels, "role": "canary" if role == "shadow" else role, "version": version}
        # Who counts copies apart says so; else they are the canary's.
        values = {"stable": self.arms.stable, "shadow": self.arms.shadow or self.arms.canary}
        return {**labels, self.arm_label: values.get(role, self.arms.canary).replace(VERSION_PLACE, version)}

    @property
    def roles(self) -> Mapping[str, str]:
        """Roles by the values that say them; none where values are versions, or where ours say it."""
        if self.arms is None or not self.names_roles:
            return {}
        return {self.arms.stable: "stable", self.arms.canary: "canary"}

    @property
    def of_arms(self) -> Mapping[str, str]:
        """What both arms have, as a regular expression; nothing where any version may be one."""
        return {self.arm_label: "|".join(map(literal, self.roles))} if self.roles else {}

    @property
    def title(self) -> str:
        """For people, with what it tells."""
        return f"{self.preset or 'by hand'}: {', '.join(self.told)}"


class MetricNames(SpecModel):
    """Whose metrics are read."""

    sources: tuple[MetricSource, ...] = ()
    """Each signal is read from the first that has it; without any, everything has the names of vLLM, or of Envoy in
    front of the engines of this machine, with the labels of tidegate's own monitors."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A source of which nothing is read, because others before it tell everything."""
        for place, source in enumerate(self.sources):
            if source.told and all(source_of(self.sources, signal) is not source for signal in source.told):
                found = f"a source of which nothing is read ({source.title})"
                yield SpecConflict(("sources", place), found, "something that no source before it has")


def source_of(sources: Sequence[MetricSource], signal: MetricSignal) -> MetricSource | None:
    """The first that tells it."""
    return next((source for source in sources if signal in source.told), None)


def untold(sources: Sequence[MetricSource], signal: MetricSignal, where: Loc) -> Iterator[SpecConflict]:
    """What is wrong when something at `where` asks a signal that no source tells; nothing where there are no sources.

    Without any, everything has the names of vLLM and of our own scrape configuration.
    """
    if not sources or source_of(sources, signal):
        return
    there = "; ".join(source.title for source in sources)
    expected = f"a source with preset {' or '.join(name for name, each in presets().items() if getattr(each, signal))}"
    if signal in _BY_HAND:
        expected += f", or its metric by hand at metrics.sources[{len(sources) - 1}].{signal}"
    yield SpecConflict(where, f"{signal}, which no source of `metrics.sources` has ({there})", expected)


_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
STRING = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?P<raw>[^`]*)`""", re.DOTALL)
"""PromQL's three kinds, and a comment, in which quotes begin none."""


def literal(value: str) -> str:
    """A regular expression that fits this text alone, without the escapes that RE2 has no need of."""
    return _SPECIAL.sub(r"\\\1", value)


def escaped(text: str, quote: str = '"') -> str:
    """Return `text` as it stands in PromQL between two of `quote`, which is `"` or `'`."""
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")


def without_raw_strings(query: str) -> str:
    """Return a query with raw strings in double quotes: promql_parser takes what is between backticks for escapes.

    https://prometheus.io/docs/prometheus/latest/querying/basics/#string-literals
    """
    return STRING.sub(lambda found: found[0] if found["raw"] is None else f'"{escaped(found["raw"])}"', query)
