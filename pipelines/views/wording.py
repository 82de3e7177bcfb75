"""Numbers, verdicts and endings in the words a person reads, the same on the screen and in every report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, GateState, RegionTraffic, StepStatus
from tidegate.core.model import Value
from tidegate.core.units import duration

CANARY_NAMES = {"canary": "stable", "challenger": "champion"}
"""How numbers name the arm on trial, and the arm it is measured against."""

ENDINGS = {
    "delivered": "is in production",
    "rolled-back": "was rolled back",
    "inconclusive": "was rolled back, undecided",
    "interrupted": "was rolled back: interrupted",
    "failed": "could not be delivered",
}

SAMPLE_SIZES = frozenset({"requests", "prompts", "pairs", "blocks"})
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
    """One number of the canary next to the same number of the stable."""

    name: str
    """Without arm and unit: `ttft p95`."""
    canary: str
    stable: str

    def __str__(self) -> str:
        return f"{self.name} {self.canary} against {self.stable}"


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
    if abs(value) >= 1000 or (float(value).is_integer() and abs(value) >= 2):
        return f"{value:,.0f}"
    return f"{value:.3g}"


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


def headline(story: DeliveryState) -> str:
    """The delivery in one line: `support-llm 3 was rolled back: quality 0.21 against 0.92`."""
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


def decision(story: DeliveryState) -> str:
    """What decided the end: the deciding gate and its key numbers, else its reason, else the delivery's."""
    gate = story.deciding
    if gate is None:
        return story.reason
    because = key_numbers(gate) or gate.latest.reason
    return because if because.startswith(f"{gate.name} ") else f"{gate.name}: {because}"


def key_numbers(gate: GateState) -> str:
    """The comparison the gate's verdict rests on; empty when its numbers compare nothing."""
    telling = [pair for pair in comparisons(gate.latest.numbers) if pair.name not in SAMPLE_SIZES]
    # Numbers that are equal for both arms decide nothing, whatever they measure.
    differing = [pair for pair in telling if pair.canary != pair.stable]
    for pair in differing + telling:
        return str(pair.model_copy(update={"name": gate.name}) if pair.name in SCORES else pair)
    return ""


def shares(region: RegionTraffic, story: DeliveryState) -> str:
    """How a region's users are shared out: `25% on 3, 75% on 2, 100% mirrored to 3`; no one knows before a look."""
    if region.name not in story.seen:
        return UNSEEN
    parts = [
        f"{region.weight}% on {story.version}" if region.weight else "",
        f"{100 - region.weight}% on {story.champion}" if story.champion and region.weight < 100 else "",
        f"{region.mirror}% mirrored to {story.version}" if region.mirror else "",
    ]
    return ", ".join(part for part in parts if part)


def at_the_end(region: RegionTraffic, story: DeliveryState) -> str:
    """How they are shared out when the delivery is over: what was seen, and that nobody looked since, where so."""
    undo = story.step(f"undo@{region.name}")
    lost = undo is not None and undo.state is StepStatus.FAILED and region.name in story.seen
    return f"{shares(region, story)} when it was last seen" if lost else shares(region, story)


def facts(story: DeliveryState, now: datetime | None = None) -> dict[str, str]:
    """What there is to say of the whole delivery, by name; `now` matters for one that runs."""
    gate, started = story.deciding, story.started
    against = f", champion {story.champion}" if story.champion else ""
    told = {
        "version": f"{story.model} {story.version}{against}" if started else "",
        "outcome": story.outcome or "running",
        "decided by": f"{decision(story)}, in {gate.step}" if gate else story.reason,
        "still open": "; ".join(map(str, story.left)),
        "took": duration(story.elapsed_seconds(now or started)) if started else "",
    }
    return {name: value for name, value in told.items() if value}


def people(story: DeliveryState) -> dict[str, str]:
    """Who had a say, each with how it was proven that it was them."""
    told = {"asked for by": story.requester, "approvals": "; ".join(story.allowed)}
    return {name: value for name, value in told.items() if value}


def _opposite(name: str) -> str:
    """The name of the same number in the other arm; empty when `name` is not one of the arm on trial."""
    words = name.split("_")
    trial = next((word for word in words if word in CANARY_NAMES), None)
    return "_".join(CANARY_NAMES[trial] if word == trial else word for word in words) if trial else ""


VERDICT_MARKS = {
    GateOutcome.PASS: "✓",
    GateOutcome.RUNNING: "…",
    GateOutcome.INCONCLUSIVE: "?",
    GateOutcome.ERROR: "!",
    GateOutcome.FAIL: "✗",
}
STEP_MARKS = {
    StepStatus.WAITING: "·",
    StepStatus.RUNNING: "▸",
    StepStatus.DONE: "✓",
    StepStatus.FAILED: "✗",
    StepStatus.SKIPPED: "–",
    StepStatus.UNDONE: "↩",
}


def tone(story: DeliveryState) -> str:
    """The class of its colour: a delivery that was interrupted or failed is bad news too."""
    return {"delivered": "good", "inconclusive": "unsure", None: "unsure"}.get(story.outcome, "bad")


def gate_row(gate: GateState) -> dict[str, Any]:
    """What a gate said last: the numbers of both arms side by side, then those that stand alone."""
    verdict = gate.latest
    pairs = [(pair.name, f"{pair.canary} against {pair.stable}") for pair in comparisons(verdict.numbers)]
    return {
        "name": gate.name,
        "step": gate.step,
        "outcome": str(verdict.outcome),
        "mark": VERDICT_MARKS[verdict.outcome],
        "reason": verdict.reason,
        "numbers": pairs + others(verdict.numbers),
    }


def broken_off(story: DeliveryState, reason: str) -> DeliveryState:
    """The story of a delivery that an error ended before its ledger could be closed, or before anything began."""
    if story.outcome is not None:
        return story
    return story.model_copy(update={"outcome": "failed" if story.started else "refused", "reason": reason})


def by_reason(silent: Mapping[str, str]) -> dict[str, list[str]]:
    """Regions by the reason why they cannot be seen: what is the same of several is told once."""
    found: dict[str, list[str]] = {}
    for name, reason in silent.items():
        found.setdefault(reason, []).append(name)
    return found
