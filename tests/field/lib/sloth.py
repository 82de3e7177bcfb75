"""What Sloth v0.16 makes of SLOs of events, for comparing rule by rule. Written from its rules' shape, not its code."""

from __future__ import annotations

STEPS = (("page", "quick"), ("page", "slow"), ("ticket", "quick"), ("ticket", "slow"))
GOOGLE = {
    ("page", "quick"): ("5m", "1h", 2.0),
    ("page", "slow"): ("30m", "6h", 5.0),
    ("ticket", "quick"): ("2h", "1d", 10.0),
    ("ticket", "slow"): ("6h", "3d", 10.0),
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> int:
    """Of `5m`."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def number(value: float) -> str:
    """As Go's %g and %v print it."""
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text


def rules(service: str, slo: dict, labels: dict[str, str], windows=GOOGLE, period: str = "30d") -> list[dict]:
    """All rules of an SLO: of its SLI, about it, its alerts."""
    name, objective = slo["name"], slo["objective"]
    ids = {"sloth_id": f"{service}-{name}", "sloth_service": service, "sloth_slo": name}
    place = "{" + ", ".join(f'{key}="{value}"' for key, value in sorted(ids.items())) + "}"
    own = {**labels, **slo.get("labels", {})}
    lengths = sorted({each for short, long, _ in windows.values() for each in (short, long)}, key=seconds)
    shortest = windows["page", "quick"][0]
    events = slo["sli"]["events"]
    found = []
    for length in lengths:
        fill = lambda text: text.replace("{{.window}}", length).replace("{{ .window }}", length)  # noqa: B023, E731
        expr = f"({fill(events['error_query'])})\n/\n({fill(events['total_query'])})\n"
        found.append(
            {
                "record": f"slo:sli_error:ratio_rate{length}",
                "expr": expr,
                "labels": {**ids, "sloth_window": length, **own},
            }
        )
    short = f"slo:sli_error:ratio_rate{shortest}{place}[{period}]"
    found.append(
        {
            "record": f"slo:sli_error:ratio_rate{period}",
            "expr": f"sum_over_time({short})\n/ ignoring (sloth_window)\ncount_over_time({short})\n",
            "labels": {**ids, "sloth_window": period, **own},
        }
    )
    about = {**ids, **own}
    on = "\n/ on(sloth_id, sloth_slo, sloth_service) group_left\nslo:error_budget:ratio" + place + "\n"
    ratio = number(objective / 100)
    for record, expr in (
        ("slo:objective:ratio", f"vector({ratio})"),
        ("slo:error_budget:ratio", f"vector(1-{ratio})"),
        ("slo:time_period:days", f"vector({number(seconds(period) / 86400)})"),
        ("slo:current_burn_rate:ratio", f"slo:sli_error:ratio_rate{shortest}{place}{on}"),
        ("slo:period_burn_rate:ratio", f"slo:sli_error:ratio_rate{period}{place}{on}"),
        ("slo:period_error_budget_remaining:ratio", f"1 - slo:period_burn_rate:ratio{place}"),
    ):
        found.append({"record": record, "expr": expr, "labels": about})
    alerting = slo["alerting"]
    budget = number((100 - objective) / 100)
    for severity in ("page", "ticket"):
        part = alerting.get(f"{severity}_alert", {})
        if part.get("disable"):
            continue
        halves = []
        for speed in ("quick", "slow"):
            few, many, percent = windows[severity, speed]
            factor = number(percent / 100 * (seconds(period) / 3600) / (seconds(many) / 3600))
            halves.append(
                "(\n    "
                + "\n    and\n    ".join(
                    f"max(slo:sli_error:ratio_rate{each}{place} > ({factor} * {budget})) without (sloth_window)"
                    for each in (few, many)
                )
                + "\n)\n"
            )
        said = "{{$labels.sloth_service}} {{$labels.sloth_slo}} SLO error budget burn rate is"
        found.append(
            {
                "alert": alerting["name"],
                "expr": "or\n".join(halves),
                "annotations": {
                    "title": f"({severity}) {said} too fast.",
                    "summary": f"{said} over expected.",
                    **alerting.get("annotations", {}),
                    **part.get("annotations", {}),
                },
                "labels": {"sloth_severity": severity, **alerting.get("labels", {}), **part.get("labels", {})},
            }
        )
    return found


def differences(document: dict, expected: list[dict]) -> list[str]:
    """Of a rule file to rules, `sloth_slo_info` aside."""
    seen = {}
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule.get("record") != "sloth_slo_info":
                seen[_key(rule)] = rule
    wanted = {_key(rule): rule for rule in expected}
    found = [f"missing: {key}" for key in wanted.keys() - seen.keys()] + [
        f"too many: {key}" for key in seen.keys() - wanted.keys()
    ]
    for key in wanted.keys() & seen.keys():
        for part in {*wanted[key], *seen[key]}:
            if wanted[key].get(part) != seen[key].get(part):
                found.append(f"{key} {part}: {seen[key].get(part)!r}, Sloth's is {wanted[key].get(part)!r}")
    return found


def _key(rule: dict) -> tuple[str, str, str]:
    labels = rule["labels"]
    return (rule.get("record") or rule["alert"], labels.get("sloth_id", ""), labels.get("sloth_severity", ""))
