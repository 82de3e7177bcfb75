"""A file of kind Gates says what is asked, of whom, and with what chance of being wrong."""

from __future__ import annotations

import pytest

from gates.analyses.latency import LatencyGate
from gates.reports.gate_file import GateFile
from tidegate.core.spec import SpecError, parse_spec

HEAD = "apiVersion: tidegate/v1\nkind: Gates\n"
GATEWAY = "metrics: {sources: [{preset: envoy-gateway, arms: {stable: a, canary: b}}]}"


def read(text: str) -> GateFile:
    return parse_spec(HEAD + text, GateFile, file="gates.yaml")


def test_what_is_not_said_has_the_defaults_of_a_delivery() -> None:
    terms = read("gates: {latency: {}, errors: {}, judge: {}}").terms()
    assert terms.gates == ("latency", "errors", "judge")
    assert (terms.rollback, terms.accept, terms.temper) == (0.01, 0.05, True)
    assert [terms.sources_of(gate) for gate in terms.gates] == [("users",), ("users",), ("probe",)]


def test_margins_budget_and_sources_become_terms() -> None:
    terms = read(
        "gates:\n  budget: {rollback: 0.5%, accept: 10%, temper: false}\n"
        "  latency: {max_increase: 30%, tolerance: 10%}\n  errors: {max_increase: 1pp}\n"
        "sources: {latency: [users, proxy]}\nmirrored: 50%\n"
    ).terms(counted_by="proxy")
    assert (terms.rollback, terms.accept, terms.temper, terms.mirrored) == (0.005, 0.1, False, 0.5)
    latency = terms.settings["latency"]
    assert isinstance(latency, LatencyGate)
    assert (latency.max_increase, latency.tolerance) == (0.3, 0.1)
    assert (terms.sources_of("latency"), terms.sources_of("errors")) == (("users", "proxy"), ("proxy",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gates: {}", "gates.yaml:3: gates: found no gate; expected at least one of latency, errors, agreement, judge"),
        (
            "gates: {errors: {max_increase: 0.5}}",
            "gates.yaml:3: gates.errors.max_increase: found 0.5; expected percent",
        ),
        (
            "gates: {latency: {}}\nsources: {latency: [users, users]}",
            "gates.yaml:4: sources.latency: found a source twice; expected each source once",
        ),
        (
            "gates: {latency: {}}\nsources: {latency: []}",
            "gates.yaml:4: sources.latency: found []; expected at least 1",
        ),
        (
            f"gates: {{latency: {{metric: ttft}}}}\n{GATEWAY}",
            "gates.yaml:3: gates.latency.metric: found ttft, which no source of `metrics.sources` has",
        ),
    ],
)
def test_a_file_that_cannot_be_asked_says_why(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(text)
    assert str(raised.value).startswith(problem)
