"""How answers differ from the baseline: divergences, entropy, length, how they end, and how sure gates are of it."""

from __future__ import annotations

from slo.dashboards.conventions import ARM, OF_USERS, SEEN, too_much
from slo.dashboards.model import Kind, Needs, Panel, Query, Row

_STATISTICS = "psi|kl|js|chi2|ks"
"""Which the drift gate may decide by; each ends the name of its numbers."""
_WHERE = "{{stage}} · {{region}}"


def _drift(numbers: str) -> str:
    """Numbers of the drift gate's last verdict whose whole name is as the expression says."""
    return f'tidegate_gate_number{{gate="drift", number=~"{numbers}", {SEEN}}}'


def _of_allowed() -> str:
    """Each divergence by which the gate decides, over what is allowed: only these have an `_allowed` beside them."""
    allowed = f'label_replace({_drift(".+_allowed")}, "number", "$1", "number", "(.+)_allowed")'
    return f"{_drift(f'.+_({_STATISTICS})')} / on (number, stage, region, version) {allowed}"


DRIFT = Row(
    title="Drift from the baseline",
    panels=(
        Panel(
            title="KL divergence from stable",
            kind=Kind.LINES,
            question="How far are the canary's answers from stable's, in nats, feature by feature?",
            action="A step that stays: read answers of both side by side. What is chance falls as requests come.",
            queries=(Query(expr=_drift("[a-z_]+_kl"), legend=f"{{{{number}}}} · {_WHERE}", needs=Needs.DRIFT),),
            width=12,
            height=8,
            decimals=3,
            low=0,
            nothing="no drift gate",
        ),
        Panel(
            title="Divergence in times of what its gate allows",
            kind=Kind.LINES,
            question="How near is each feature to failing the drift gate?",
            action="`users_` above 1: users changed, so renew the reference. Another above 1: the version did.",
            queries=(Query(expr=_of_allowed(), legend=f"{{{{number}}}} · {_WHERE}", needs=Needs.DRIFT),),
            width=12,
            height=8,
            unit="suffix:×",
            low=0,
            steps=too_much(1.0, near=0.8),
            nothing="no drift gate",
        ),
    ),
)

SHAPE = Row(
    title="Shape of answers",
    panels=(
        Panel(
            title="Entropy of the next token",
            kind=Kind.LINES,
            question="How sure of its words is each version, as a mean over its answers, in nats?",
            action="Falls on the canary: it repeats itself or is too sure. Rises: a wrong template or broken weights.",
            queries=(
                Query(
                    expr=_drift("(canary|stable)_mean_entropy_nats"),
                    legend=f"{{{{number}}}} · {_WHERE}",
                    needs=Needs.ENTROPY,
                ),
            ),
            width=8,
            height=8,
            decimals=2,
            low=0,
            nothing="no drift gate on entropy",
        ),
        Panel(
            title="How answers end",
            kind=Kind.LINES,
            question="What share of answers stops by itself, and what share is cut by length, aborted or in error?",
            action="More `length` on the canary: it does not find an end. More `abort`: users leave; look at latency.",
            queries=(
                Query(
                    expr=(
                        f"sum by (role, version, finished_reason) (tidegate:finish_reasons:rate1m{{{OF_USERS}}})"
                        " / on (role, version) group_left ()"
                        f" sum by (role, version) (tidegate:finish_reasons:rate1m{{{OF_USERS}}}) > 0"
                    ),
                    legend="{{finished_reason}} · {{role}} {{version}}",
                ),
            ),
            width=8,
            height=8,
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            title="Tokens of an answer",
            kind=Kind.LINES,
            question="How long are the answers of each version, as a mean?",
            action="Longer is dearer and slower, shorter may be less helpful: neither is better by itself; read some.",
            queries=(
                Query(
                    expr=(
                        f"sum by ({ARM}) (tidegate:generation_tokens:rate1m{{{OF_USERS}}})"
                        f" / (sum by ({ARM}) (tidegate:finish_reasons:rate1m{{{OF_USERS}}}) > 0)"
                    ),
                    legend="{{role}} {{version}} · {{region}}",
                ),
            ),
            width=8,
            height=8,
            decimals=1,
            low=0,
        ),
    ),
)


def _sure(side: str) -> Query:
    """Evidence over what is needed: 1 decides."""
    about = f'gate!="burn_rate", {SEEN}'
    have = f'tidegate_gate_number{{number="evidence_{side}", {about}}}'
    need = f'tidegate_gate_number{{number="evidence_{side}_needed", {about}}}'
    words = {"worse": "is worse", "fine": "is fine"}[side]
    return Query(
        expr=f"ln({have}) / ignoring (number) ln({need})",
        legend=f"{words} · {{{{gate}}}} · {_WHERE}",
        needs=Needs.DELIVERY,
    )


EVIDENCE = Row(
    title="How sure the gates are",
    panels=(
        Panel(
            title="Evidence against what a gate needs",
            kind=Kind.LINES,
            question="How far is each gate on its way to a verdict? 1 decides; the scale is the logarithm of the odds.",
            action="Flat near 0: too little traffic for so narrow a margin; `tidegate plan` says how much is needed.",
            queries=(_sure("fine"), _sure("worse")),
            width=24,
            height=8,
            decimals=2,
            nothing="no delivery",
        ),
    ),
)
