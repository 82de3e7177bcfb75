"""One line is an SLO; a line that cannot be one is told why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fakes.metrics.slos import slo_spec

from slo.spec import KINDS, CostSpec, SloSpec, named_twice
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.spec import SpecError, parse_spec


class Promises(SpecModel):
    slos: tuple[SloSpec, ...] = ()
    cost: CostSpec | None = None

    def contradictions(self) -> Iterator[SpecConflict]:
        yield from named_twice(self.slos)
        for index, each in enumerate(self.slos):
            for odd in each.unmeasured(()):
                yield replace(odd, where=("slos", index, *odd.where))


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, Promises, file="d.yaml")
    return [str(problem) for problem in caught.value.problems]


def slo(said: str, *, objective: object = 99, more: str = "") -> str:
    return f"slos:\n  - {{name: one, objective: {objective}, {said}{more}}}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_one_line(kind: str) -> None:
    assert slo_spec(kind).kind == kind
    assert list(slo_spec(kind).all_contradictions()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (slo("ttft: {below: 200ms}"), "below: found 200ms; expected an edge of vllm:time_to_first_token_seconds's"),
        (slo("ttft: {below: 200ms}"), "the nearest: 100ms and 250ms"),
        (slo("ttft: {below: 2h}"), "the nearest: 2560s"),
        (slo("e2e: {below: 100ms}"), "the nearest: 300ms"),
        (slo("itl: {below: 60ms}"), "vllm:inter_token_latency_seconds's buckets; the nearest: 50ms and 75ms"),
        (slo("queue_time: {below: 3s}"), "the nearest: 2.5s and 5s"),
        (slo("tokens_per_second: {at_least: 15}"), "found 15; expected one over an edge of vllm:request_time"),
        (slo("tokens_per_second: {at_least: 15}"), "the nearest: 13.3 and 20"),
        (slo("errors: {}", objective=100), "objective: found 100; expected less than 100: a promise of no bad event"),
        (slo("errors: {}", objective=0.999), "found 0.999; expected at least 50, percent of good events; did you"),
        (slo("errors: {}", objective="0.999%"), "did you mean 99.9%?"),
        (slo("errors: {}", objective=40), "objective: found 40; expected at least 50, percent of good events"),
        (slo("errors: {}", objective=99.9, more=", window: 7d"), "window: found 7d; expected a period that has alert"),
        (slo("errors: {}", more=", labels: {region: eu}"), "labels.region: found region; expected another name"),
        (slo("errors: {}", more=", labels: {sloth_id: a}"), "labels.sloth_id: found sloth_id; expected another name"),
        (slo("errors: {}", more=", labels: {service: a}"), "labels.service: found service; expected another name"),
        (slo("errors: {}", more=", ttft: {below: 1s}"), "slos[0]: found errors and ttft; expected exactly one"),
        (slo("labels: {}"), "slos[0]: found nothing; expected exactly one of errors, ttft, itl"),
        (slo("errors: {counted_by: nobody}"), "counted_by: found 'nobody'; expected 'proxy' or 'engine'"),
        (slo("kv_cache: {below: 0.9}"), "kv_cache.below: found 0.9; expected a percent such as 20%"),
        (slo("quality: {at_least: 1.1}"), "quality.at_least: found 1.1; expected less than or equal to 1"),
        (slo("errors: {}", more=", description: '{{ $value }}'"), "description: found '{{ $value }}'; expected text"),
        ("cost: {per_engine_hour: 0}\n", "cost.per_engine_hour: found 0; expected greater than 0"),
        ("cost: {per_engine_hour: 1, currency: euro}\n", "cost.currency: found 'euro'; expected text that matches"),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_one_problem(text: str, problem: str) -> None:
    (found,) = problems(text)
    assert problem in found


def test_two_slos_cannot_write_the_same_series() -> None:
    line = "  - {name: one, objective: 99, errors: {}}\n"
    (problem,) = problems("slos:\n" + 2 * line)
    assert problem == "d.yaml:3: slos[1].name: found one twice; expected a name of its own for each SLO"


def test_a_speed_may_be_rounded_as_people_round() -> None:
    for speed in (13.3, 13.33, 13.333333):
        threshold = slo_spec("tokens_per_second", at_least=speed).threshold
        assert threshold
        assert threshold.edge == 0.075
