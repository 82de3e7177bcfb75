"""Numbers and endings in the words a person reads, the same on the screen and in the report.

A verdict's numbers carry their unit in their name (`ttft_p95_canary_seconds`); what is told here is
read from that, so that a new gate needs no display of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pipelines.story import Gate, Region, StepState, Story
from tidegate.core.model import Value

CANARY_NAMES = {"canary": "stable", "challenger": "champion"}
"""How numbers name the arm on trial, and the arm it is measured against."""

ENDINGS = {
    "delivered": "is in production",
    "rolled-back": "was taken back",
    "inconclusive": "was taken back undecided",
    "interrupted": "was taken back: interrupted",
    "failed": "could not be delivered",
}

SAMPLE_SIZES = frozenset({"requests", "prompts", "pairs"})
"""Comparisons that say how much was seen, not what."""

SCORES = frozenset({"score", "mean score"})
"""Names that say less than their gate's."""

UNSEEN = "not looked at"
"""Of a region of which no delivery saw how its users are shared out."""

# The last word of a number's name is its unit.
SHARES = ("share", "ratio", "rate", "fraction")
ACRONYMS = ("ttft", "itl", "tpot", "psi")
UNITS = ("seconds", "bytes", "percent", *SHARES)


class Comparison(Value):
    """One number of the canary beside the same number of the stable."""

    name: str
    """Without arm and unit: `ttft p95`."""
    canary: str
    stable: str

    def __str__(self) -> str:
        return f"{self.name} {self.canary} against {self.stable}"


def duration(seconds: float) -> str:
    """A duration at the precision a person cares for: `85 ms`, `1.25 s`, `42 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def stopwatch(seconds: float) -> str:
    """A moving duration that keeps its width: `3:07`, `1:02:45`."""
    whole = int(seconds)
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def moment(at: datetime) -> str:
    """To the second: who looks at two pages wants to know which happened first."""
    return f"{at:%Y-%m-%d %H:%M:%S %Z}"


def number(name: str, value: float) -> str:
    """A number with the unit that its name states."""
    unit = name.rpartition("_")[2]
    if unit == "seconds":
        return duration(value)
    if unit in SHARES:
        return f"{value:.2%}".replace(".00%", "%")
    if unit == "percent":
        return f"{value:g}%"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) >= 2 else f"{value:.3g}"


def label(name: str) -> str:
    """A number's name as a person reads it, without its unit."""
    words = [word for word in name.split("_") if word]
    words = words[:-1] if len(words) > 1 and words[-1] in UNITS else words
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)


def comparisons(numbers: Mapping[str, float]) -> list[Comparison]:
    """The numbers that exist for both arms, in their order."""
    found = []
    for name, value in numbers.items():
        other = _opposite(name)
        if other in numbers:
            words = [word for word in name.split("_") if word not in CANARY_NAMES]
            shown = (number(name, value), number(name, numbers[other]))
            found.append(Comparison(name=label("_".join(words)) or name, canary=shown[0], stable=shown[1]))
    return found


def others(numbers: Mapping[str, float]) -> list[tuple[str, str]]:
    """The numbers that stand alone, as name and value."""
    paired = {name for name in numbers if _opposite(name) in numbers} | {
        _opposite(name) for name in numbers if _opposite(name) in numbers
    }
    return [(label(name), number(name, value)) for name, value in numbers.items() if name not in paired]


def headline(story: Story) -> str:
    """The delivery in one line: `support-llm 3 was taken back: quality 0.21 against 0.92`."""
    if story.started is None:
        return "nothing was recorded of this delivery"
    subject = f"{story.model} {story.version}"
    if story.outcome is None:
        return f"{subject} is on its way"
    ending = f"{subject} {ENDINGS.get(story.outcome, story.outcome)}"
    if story.outcome in ("delivered", "interrupted"):
        return ending
    gate = story.deciding
    because = (key_numbers(gate) if gate else "") or decision(story)
    return f"{ending}: {because}" if because else ending


def decision(story: Story) -> str:
    """What decided the end: the deciding gate and its key numbers, else its reason, else the delivery's."""
    gate = story.deciding
    if gate is None:
        return story.reason
    because = key_numbers(gate) or gate.latest.reason
    return because if because.startswith(f"{gate.name} ") else f"{gate.name}: {because}"


def key_numbers(gate: Gate) -> str:
    """The comparison the gate's verdict rests on; empty when its numbers compare nothing."""
    telling = [pair for pair in comparisons(gate.latest.numbers) if pair.name not in SAMPLE_SIZES]
    # Numbers that are equal for both arms decide nothing, whatever they measure.
    differing = [pair for pair in telling if pair.canary != pair.stable]
    for pair in differing + telling:
        return str(pair.model_copy(update={"name": gate.name}) if pair.name in SCORES else pair)
    return ""


def shares(region: Region, story: Story) -> str:
    """How a region's users are shared out: `25% on 3, 75% on 2, 100% mirrored to 3`; nobody knows before a look."""
    if region.name not in story.seen:
        return UNSEEN
    parts = [
        f"{region.weight}% on {story.version}" if region.weight else "",
        f"{100 - region.weight}% on {story.champion}" if story.champion and region.weight < 100 else "",
        f"{region.mirror}% mirrored to {story.version}" if region.mirror else "",
    ]
    return ", ".join(part for part in parts if part)


def at_the_end(region: Region, story: Story) -> str:
    """How they are shared out when the delivery is over: what was seen, and that nobody looked since, where so."""
    undo = story.step(f"undo@{region.name}")
    lost = undo is not None and undo.state is StepState.FAILED and region.name in story.seen
    return f"{shares(region, story)} when it was last seen" if lost else shares(region, story)


def people(story: Story) -> list[tuple[str, str]]:
    """Who had a say, each with how it was proven that it was them."""
    asked = [("Asked for by", story.requester)] if story.requester else []
    return asked + ([("Approvals", "; ".join(story.allowed))] if story.allowed else [])


def _opposite(name: str) -> str:
    """The name of the same number in the other arm; empty when `name` is not one of the arm on trial."""
    words = name.split("_")
    trial = next((word for word in words if word in CANARY_NAMES), None)
    return "_".join(CANARY_NAMES[trial] if word == trial else word for word in words) if trial else ""
