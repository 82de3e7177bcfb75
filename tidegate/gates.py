"""Gates for programs that have evidence of their own: a sequential test, the settings of gates, batches, verdicts.

    test = SequentialTest(AnalysisPlan.model_validate({"latency": {"max_increase": "20%"}}))
    test.take(batch)
    test.verdicts()

The same batches always give the same verdicts.
"""

from gates.analyses.agreement import AgreementGate
from gates.analyses.burn_rate import BurnRateGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, Buckets, PairedAnswer, PairedReply, PodEvidence
from gates.judge.spec import JudgeGate
from gates.model import GateOutcome, Verdict, worst
from gates.sequential_test import AnalysisPlan, SequentialTest

__all__ = [
    "AgreementGate",
    "AnalysisPlan",
    "ArmName",
    "Batch",
    "Buckets",
    "BurnRateGate",
    "ErrorsGate",
    "GateOutcome",
    "JudgeGate",
    "LatencyGate",
    "PairedAnswer",
    "PairedReply",
    "PodEvidence",
    "SequentialTest",
    "Verdict",
    "worst",
]
