"""L2, for ML engineers: whether answers are as good as before, and the same as before at all."""

from __future__ import annotations

from slo.dashboards.answers import DRIFT, EVIDENCE, SHAPE
from slo.dashboards.conventions import ARM, ARM_LEGEND, OF_USERS, SEEN, too_little
from slo.dashboards.model import COLUMNS, Dashboard, Kind, Needs, Panel, Query, Row
from slo.dashboards.promises import Promises
from slo.spec import CountedBy

_BAND = 0.05
"""Above the line: where quality is watched."""


def engineering(promises: Promises, uid: str, *, counted_by: CountedBy) -> Dashboard:
    """Quality first, then what moves before quality is seen to: drift, and the shape of answers.

    Only a proxy of ours counts users who ask again.
    """
    return Dashboard(
        uid=uid,
        title=f"{promises.service} · L2 ML engineering",
        description="Are the answers as good as before? Scores, refusals, drift, shape, and users who ask again.",
        service=promises.service,
        since="6h",
        rows=(_quality(promises.quality, again=counted_by is CountedBy.PROXY), DRIFT, SHAPE, EVIDENCE),
    )


def _quality(line: float | None, *, again: bool) -> Row:
    last = (_HALLUCINATION, _REFUSAL, *([_AGAIN] if again else []))
    sized = (panel.model_copy(update={"width": COLUMNS // len(last)}) for panel in last)
    return Row(title="Quality of answers", panels=(_composite(line), _DIMENSIONS, *sized))


def _composite(line: float | None) -> Panel:
    band = f" Green from {line + _BAND:g} on, red below the SLO's {line:g}." if line else ""
    return Panel(
        title="Composite quality",
        kind=Kind.LINES,
        question=f"How good are answers, all dimensions of the judge weighed together?{band}",
        action=(
            "Canary below stable: read both answers of its worst pairs. Both fall together: users ask something new, "
            "or the judge has changed."
        ),
        queries=(
            _score("overall", "judge", Needs.SCORES),
            _score("golden", "golden set", Needs.DELIVERY),
        ),
        width=12,
        height=9,
        decimals=2,
        low=0,
        high=1,
        steps=too_little(line, near=line + _BAND) if line else (),
        banded=True,
        nothing="no scores yet",
    )


def _score(dimension: str, words: str, needs: Needs) -> Query:
    return Query(
        expr=f'tidegate_quality_score{{dimension="{dimension}", {OF_USERS}}}',
        legend=f"{ARM_LEGEND} · {words}",
        needs=needs,
    )


_DIMENSIONS = Panel(
    title="Quality by dimension",
    kind=Kind.LINES,
    question="Which side of quality moved: helpfulness, accuracy, coherence or safety?",
    action="Safety first: any fall of the canary ends its delivery. Accuracy alone: compare what it was trained on.",
    queries=(
        Query(
            expr=f'tidegate_quality_score{{dimension!~"overall|golden", {OF_USERS}}}',
            legend="{{role}} {{version}} · {{dimension}} · {{region}}",
            needs=Needs.SCORES,
        ),
    ),
    width=12,
    height=9,
    decimals=2,
    low=0,
    high=1,
    nothing="no judge",
)

_HALLUCINATION = Panel(
    title="Hallucination: what answers lack in accuracy",
    kind=Kind.LINES,
    question="How much of what is answered is wrong or made up, as the judge scores it? 1 less the accuracy.",
    action="Canary above stable: read the pairs of lowest accuracy; a missing document looks just like it.",
    queries=(
        Query(
            expr=f'1 - tidegate_quality_score{{dimension="accuracy", {OF_USERS}}}',
            legend=ARM_LEGEND,
            needs=Needs.SCORES,
        ),
    ),
    width=8,
    height=8,
    unit="percentunit",
    low=0,
    nothing="no judge",
)

_REFUSAL = Panel(
    title="Answers that decline",
    kind=Kind.LINES,
    question="How often does each version say that it cannot help, of the answers that the gates compared?",
    action="Canary above stable: read what it declines; a system prompt or a safety tune moves it first.",
    queries=(
        Query(
            expr=f'tidegate_gate_number{{gate=~"drift|agreement", number=~"(canary|stable)_refusal_share", {SEEN}}}',
            legend="{{number}} · {{gate}} · {{stage}} · {{region}}",
            needs=Needs.PAIRS,
        ),
    ),
    width=8,
    height=8,
    unit="percentunit",
    low=0,
    nothing="no gate compares answers",
)

_AGAIN = Panel(
    title="Regeneration: users who ask again",
    kind=Kind.LINES,
    question="Of each version's answers, how many were not wanted and asked for once more?",
    action="Canary above stable: users judge it worse than any judge; believe them and read what they asked.",
    queries=(
        Query(
            expr=(
                f"sum by ({ARM}) (tidegate:regenerations:rate5m{{{OF_USERS}}})"
                f" / (sum by ({ARM}) (avg_over_time(tidegate:requests:rate1m{{{OF_USERS}}}[5m])) > 0)"
            ),
            legend=ARM_LEGEND,
            needs=Needs.REGENERATIONS,
        ),
    ),
    width=8,
    height=8,
    unit="percentunit",
    low=0,
    nothing="no client says so",
)
