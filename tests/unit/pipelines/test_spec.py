"""A wrong delivery.yaml is told line by line; a right one needs little said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import LocalFleet
from rollouts.manifests.theirs_spec import RouteFleetSpec
from tidegate.core.spec import SpecError, parse_spec

SPEC = """\
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}}
gates: {latency: {}, errors: {}, quality: {}, agreement: {}}
stages:
  - offline: {dataset: golden.jsonl}
  - shadow: {}
  - canary: {}
regions: {waves: [[eu-west-1], [us-east-1, ap-south-1]]}
traffic: {requests_per_second: 2}
"""


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


def with_line(number: int, line: str) -> str:
    """The right spec above with another line in one place."""
    lines = SPEC.splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_short_spec_gets_careful_defaults() -> None:
    spec = read(SPEC)
    assert (spec.model.origin, spec.model.target) == ("challenger", "champion")
    assert spec.regions.bake == timedelta(minutes=30)
    assert spec.canary
    assert spec.canary.weights == (5, 25, 50)
    assert spec.shadow
    assert (spec.shadow.percent, spec.shadow.at_least) == (100, timedelta(minutes=5))
    assert spec.fleet == LocalFleet()


@pytest.mark.parametrize(
    ("percent", "weights", "share", "objective"),
    [
        ("100%", "[5%, 25%, 50%]", "60%", "99.9%"),
        ("100", "[5, 25, 50]", "0.6", "99.9"),
        ("100.0%", "[5, 25%, 50]", "60pp", "99.90%"),
    ],
)
def test_a_share_may_be_written_with_its_percent_sign_anywhere(
    percent: str, weights: str, share: str, objective: str
) -> None:
    text = SPEC.replace("shadow: {}", f"shadow: {{percent: {percent}}}").replace(
        "canary: {}", f"canary: {{weights: {weights}}}"
    )
    text = text.replace("agreement: {}", f"agreement: {{min_similarity: {share}}}")
    text += (
        f"approvals: [{{before: canary, weight: 25%}}]\nslos: [{{name: up, objective: {objective}, errors: {{}}}}]\n"
    )
    spec = read(text)
    assert spec.shadow
    assert spec.canary
    assert spec.gates.agreement
    assert (spec.shadow.percent, spec.canary.weights, spec.gates.agreement.min_similarity) == (100, (5, 25, 50), 0.6)
    assert (spec.approvals[0].weight, spec.slos[0].objective) == (25, 99.9)


def test_from_and_to_are_how_a_person_writes_the_aliases() -> None:
    spec = read(with_line(4, "model: {name: support-llm, from: '7', to: champion}"))
    assert spec.model.origin == "7"
    assert problems(with_line(4, "model: {name: support-llm, origin: '7'}")) == [
        "delivery.yaml:4: model.origin: found an unknown key; expected one of name, from, to, previous"
    ]


@pytest.mark.parametrize(
    ("number", "line", "sentence"),
    [
        (1, "apiVersion: tidegate/v2", "1: apiVersion: found 'tidegate/v2'; expected 'tidegate/v1'"),
        (2, "kind: Pipeline", "2: kind: found 'Pipeline'; expected 'Delivery'"),
        (
            4,
            """model: {name: "m' OR name LIKE 'x"}""",
            """4: model.name: found "m' OR name LIKE 'x"; expected text that matches ^[^'"`\\\\/:\\x00-\\x1f]+$""",
        ),
        (
            4,
            "model: {name: support-llm, to: models:/support-llm/Production}",
            "4: model.to: found 'models:/support-llm/Production': no name of an alias, which has letters, digits, - "
            "and _; expected an alias of the model, such as `champion` or `production`",
        ),
        (
            4,
            "model: {name: support-llm, from: latest}",
            "4: model.from: found 'latest': a name that MLflow keeps for versions; expected an alias of the model, "
            "such as `champion` or `production`",
        ),
        (
            4,
            "model: {name: support-llm, to: live, previous: live}",
            "4: model: found `previous` and `to` both live; expected two aliases",
        ),
        (
            6,
            "gates: {latency: {}, errors: {max_increase: 1%}, quality: {}, agreement: {}}",
            "6: gates.errors.max_increase: found '1%'; expected percentage points such as 0.5pp",
        ),
        (
            9,
            "  - shadow: {percent: all}",
            "9: stages[1].shadow.percent: found 'all'; expected a percent such as 25 or 25%",
        ),
        (
            6,
            "gates: {latency: {}, errors: {}, quality: {max_drop: little}, agreement: {}}",
            "6: gates.quality.max_drop: found 'little'; expected a share such as 0.03, 3% or 3pp",
        ),
        (
            9,
            "  - shadow: {gates: [quality]}",
            "9: stages[1].shadow.gates[0]: found 'quality' of kind quality; "
            "expected a gate of kind latency, errors, agreement, judge, burn_rate, drift, query",
        ),
        (
            10,
            "  - canary: {weights: [25, 5]}",
            "10: stages[2].canary.weights: found [25, 5]; expected weights that rise from step to step, "
            "such as [5, 25, 50]",
        ),
        (
            11,
            "regions: {waves: [[eu-west-1], [eu-west-1]]}",
            "11: regions.waves: found [['eu-west-1'], ['eu-west-1']]; expected each region in one wave only",
        ),
        (
            11,
            f"regions: {{waves: [[{', '.join(f'r{number}' for number in range(201))}]]}}",
            f"11: regions.waves: found {str([[f'r{number}' for number in range(201)]])[:80]}...; "
            "expected at most 200 regions in all waves together",
        ),
        (
            10,
            "  - canary: {weights: [50, 100]}",
            "10: stages[2].canary.weights[1]: found 100; expected at most 99: the promotion after the last weight is "
            "the 100 %",
        ),
        (6, "gates: {latency: 20%}", "6: gates.latency: found '20%'; expected a mapping such as `{max_increase: 20%}`"),
        (6, "gates: {latency: {quantile: p95}}", "6: gates.latency.quantile: found 'p95'; expected 0.95"),
        (12, "fleet: local", "12: fleet: found 'local'; expected a mapping such as `{kind: local}`"),
        (
            12,
            "traffic: {requests_per_second: 0}",
            "12: traffic.requests_per_second: found 0; expected greater than 0",
        ),
    ],
)
def test_a_value_that_cannot_be_is_told_with_what_could(number: int, line: str, sentence: str) -> None:
    assert problems(with_line(number, line)) == [f"delivery.yaml:{sentence}"]


ONE = "expected exactly one of offline, load, shadow, canary in each item of the list"
ORDERED = "expected each stage at most once, in the order offline, load, shadow, canary"


@pytest.mark.parametrize(
    ("number", "line", "begins", "ends"),
    [
        (9, "  - {shadow: {}, canary: {}}", "9: stages[1]", ONE),
        # Neither is taken for a stage of defaults.
        (9, "  - {}", "9: stages[1]", ONE),
        (9, "  - shadow:", "9: stages[1]", ONE),
        (10, "  - offline: {dataset: other.jsonl}\n  - offline: {dataset: golden.jsonl}", "7: stages", ORDERED),
        (10, "  - shadow: {percent: 50}\n  - offline: {dataset: golden.jsonl}", "7: stages", ORDERED),
        (8, "  - offline: {dataset: golden.jsonl, gates: []}", "8: stages[0].offline.gates", "at least 1 of them"),
        (10, "  - canary: {gates: []}", "10: stages[2].canary.gates", "at least 1 of them"),
        (11, "regions: {waves: []}", "11: regions.waves", "at least 1 of them"),
        (11, "regions: {waves: [[]]}", "11: regions.waves[0]", "at least 1 of them"),
    ],
)
def test_a_list_that_cannot_be_is_told_with_what_could(number: int, line: str, begins: str, ends: str) -> None:
    (problem,) = problems(with_line(number, line))
    assert problem.startswith(f"delivery.yaml:{begins}: found ") and problem.endswith(ends)


@pytest.mark.parametrize("name", ["EU West", "-eu", "eu.west", "x" * 64])
def test_a_region_has_a_name_that_every_system_takes(name: str) -> None:
    (problem,) = problems(with_line(11, f"regions: {{waves: [['{name}']]}}"))
    assert problem.startswith(
        f"delivery.yaml:11: regions.waves[0][0]: found '{name}'; expected at most 63 lower-case letters, digits and"
    )


def test_gates_that_a_stage_waits_for_have_settings() -> None:
    assert problems(with_line(6, "gates: {latency: {}, quality: {}, agreement: {}}")) == [
        "delivery.yaml:9: stages[1].shadow.gates[1]: found 'errors' without settings; "
        "expected settings at gates.errors",
        "delivery.yaml:10: stages[2].canary.gates[1]: found 'errors' without settings; "
        "expected settings at gates.errors",
    ]


def test_a_gate_that_no_stage_names_needs_no_settings() -> None:
    text = with_line(6, "gates: {latency: {}, quality: {}, agreement: {}}").replace(
        "shadow: {}", "shadow: {gates: [latency]}"
    )
    assert read(text.replace("canary: {}", "canary: {gates: [latency]}")).gates.errors is None


def test_a_shadow_needs_prompts_for_its_pairs() -> None:
    assert problems(with_line(8, "  # no offline")) == [
        "delivery.yaml:9: stages[0].shadow: found no prompts to pair; expected prompts at traffic.prompts"
    ]
    text = with_line(8, "  # no offline").replace("_second: 2", "_second: 2, prompts: prompts.txt")
    assert read(text).shadow


@pytest.mark.parametrize(
    ("number", "stage", "sentence"),
    [
        (9, "shadow: {within: 2m}", "9: stages[1].shadow.at_least: found 5m; expected at most `within`, which is 2m"),
        (
            10,
            "canary: {at_least: 1h, within: 10m}",
            "10: stages[2].canary.at_least: found 1h; expected at most `within`, which is 10m",
        ),
    ],
)
def test_a_stage_cannot_last_longer_than_its_end(number: int, stage: str, sentence: str) -> None:
    assert problems(with_line(number, f"  - {stage}")) == [f"delivery.yaml:{sentence}"]


def test_a_port_belongs_to_a_region_of_a_wave() -> None:
    text = SPEC + "fleet:\n  ports:\n    eu-west-1: 8080\n    eu-west-2: 8081\n"
    assert problems(text) == [
        "delivery.yaml:16: fleet.ports.eu-west-2: found an unknown region; "
        "expected one of eu-west-1, us-east-1, ap-south-1"
    ]


CLUSTERS = """\
fleet:
  kind: argo
  namespace: support
  gateway: {name: public, hosts: [support.example]}
  regions:
    eu-west-1: {context: eu, <<: &at {entry: https://e.example, stable_url: https://s.example,
      canary_url: https://c.example, prometheus: https://p.example}}
    us-east-1: {context: us, <<: *at}
    ap-south-1: {context: ap, <<: *at}
"""


def test_a_fleet_of_clusters_that_does_not_say_so_is_told_what_is_missing() -> None:
    told = problems(SPEC + CLUSTERS.replace("  kind: argo\n", ""))
    assert told == ["delivery.yaml:13: fleet.kind: found nothing; expected a value here"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("  kind: agro", "13: fleet: found kind agro; expected argo (the nearest known name)"),
        (
            "  kind: argo\n  ports: {}",
            "15: fleet.ports: found an unknown key; expected ",
        ),
    ],
)
def test_what_is_wrong_with_clusters_is_told_by_their_rules(wrong: str, problem: str) -> None:
    told = problems(SPEC + CLUSTERS.replace("  kind: argo", wrong))
    assert any(line.startswith(f"delivery.yaml:{problem}") for line in told), told


PEERS = """
fleet:
  kind: route
  namespace: serving
  route: chat
  peers:
    blue: {backend: chat-blue, series: chat-blue}
    green: {backend: chat-green, series: chat-green}
  regions:
    eu-west-1: {context: eu, <<: &at {entry: https://e.example, prometheus: https://p.example,
      urls: &urls {blue: https://b.example, green: https://g.example}}}
    us-east-1: {context: us, <<: *at}
    ap-south-1: {context: ap, <<: *at}
"""


def test_a_route_with_two_backends_is_read() -> None:
    fleet = read(SPEC + PEERS).fleet
    assert isinstance(fleet, RouteFleetSpec)
    assert (fleet.reference.other("blue"), fleet.runs_images) == ("green", False)


def test_engines_of_others_count_at_the_times_that_they_have() -> None:
    (told,) = problems(SPEC + PEERS + "slos: [{name: ttft, objective: 99, ttft: {below: 200ms}}]\n")
    assert told.endswith("seconds's buckets; the nearest: 100ms and 250ms")


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("backend: chat-green", "backend: chat-blue", "fleet.peers.green.backend: found that of blue"),
        ("series: chat-green", "series: chat-blue", "fleet.peers.green.series: found that of blue"),
        ("context: us", "context: eu", "fleet.regions.us-east-1.context: found the cluster of eu-west-1"),
        ("  route: chat\n", "  route: chat\n  traffic: istio\n", "fleet.traffic: found istio"),
        (
            "{context: ap, <<: *at}",
            "{context: ap, <<: *at, urls: {blue: https://b.example}}",
            "fleet.regions.ap-south-1.urls: found blue; expected an address for blue and another for green, or none",
        ),
        (
            "series: chat-blue}",
            "series: chat-blue, workload: {name: a, set: {/spec/x: fixed}}}",
            "fleet.peers.blue.workload.set./spec/x: found 'fixed'; expected text with at least one of {image}",
        ),
    ],
)
def test_what_is_wrong_with_two_backends_is_told(right: str, wrong: str, problem: str) -> None:
    assert any(problem in line for line in problems(SPEC + PEERS.replace(right, wrong)))


def test_an_unknown_key_of_one_region_is_told_with_the_keys_of_regions() -> None:
    told = problems(SPEC + CLUSTERS.replace("{context: us", "{contxt: us"))
    assert "20: fleet.regions.us-east-1.contxt: found an unknown key; expected context (the n" in "\n".join(told)
