"""Evidence in, verdict out: which gate judges which evidence.

`judge` decides and is pure. `measure` fetches a window's evidence from a `MetricSource` and judges it.
"""

from __future__ import annotations

from datetime import datetime

from gates.distribution import Latencies
from gates.error_rate import GATE as ERRORS
from gates.error_rate import judge_errors
from gates.latency import GATE as LATENCY
from gates.latency import judge_latency
from gates.model import AnswerScores, ArmKey, Outcome, Pairs, RequestCounts, Verdict
from gates.pairs import judge_pairs
from gates.ports import MetricSource
from gates.quality import judge_quality
from gates.spec import AgreementGate, ErrorsGate, LatencyGate, QualityGate
from tidegate.core.errors import OutsideError

Settings = LatencyGate | ErrorsGate | QualityGate | AgreementGate
Evidence = Latencies | RequestCounts | AnswerScores | Pairs


def judge(settings: Settings, evidence: Evidence, *, deadline_passed: bool) -> Verdict:
    """Ask the gate that `settings` describe.

    Raises:
        TypeError: when the evidence is not the kind that this gate looks at.
    """
    match settings, evidence:
        case LatencyGate(), Latencies():
            return judge_latency(settings, evidence, deadline_passed=deadline_passed)
        case ErrorsGate(), RequestCounts():
            return judge_errors(settings, evidence, deadline_passed=deadline_passed)
        case QualityGate(), AnswerScores():
            return judge_quality(settings, evidence, deadline_passed=deadline_passed)
        case AgreementGate(), Pairs():
            return judge_pairs(settings, evidence, deadline_passed=deadline_passed)
    raise TypeError(f"{type(settings).__name__} does not look at {type(evidence).__name__}")


def measure(
    settings: LatencyGate | ErrorsGate,
    source: MetricSource,
    *,
    stable: ArmKey,
    canary: ArmKey,
    since: datetime,
    until: datetime,
    deadline_passed: bool,
) -> Verdict:
    """Judge both arms over one window; a source that is not there makes the verdict an `error`."""
    arms = {"stable": stable, "canary": canary}
    evidence: Evidence
    try:
        if isinstance(settings, LatencyGate):
            metric = settings.metric
            evidence = Latencies(**{name: source.latencies(metric, arm, since, until) for name, arm in arms.items()})
        else:
            evidence = RequestCounts(**{name: source.requests(arm, since, until) for name, arm in arms.items()})
    # Not raised: whoever asks again may find the source back, and the other gates have their say.
    except OutsideError as error:
        gate = LATENCY if isinstance(settings, LatencyGate) else ERRORS
        return Verdict(gate=gate, outcome=Outcome.ERROR, reason=str(error))
    return judge(settings, evidence, deadline_passed=deadline_passed)
