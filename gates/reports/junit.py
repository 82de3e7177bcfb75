"""JUnit XML, the one report that every CI system reads.

A case without a verdict is an `error`, not `skipped`: CI shows skipped tests as if nothing were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from gates.model import GateOutcome, Verdict


def xml_text(text: str) -> str:
    """Without characters that XML cannot hold; a reason may quote what a source wrote into `missing`."""
    return re.sub(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


RESULTS: Mapping[GateOutcome, type[FinalResult] | None] = {GateOutcome.PASS: None, GateOutcome.FAIL: Failure}
"""By outcome, how CI shows it. Every other one is an error: it is unknown whether all is well."""


def case(
    group: str,
    name: str,
    result: type[FinalResult] | None,
    *,
    kind: str = "",
    reason: str = "",
    seconds: float = 0.0,
    output: str = "",
) -> TestCase:
    """One thing that went well (without a `result`) or did not.

    Args:
        group: what CI lists it under, as it does classes of tests.
        name: of the case.
        result: how CI shows it.
        kind: the word for what went wrong, such as `inconclusive`.
        reason: why it did not go well.
        seconds: that it took.
        output: for the one who opens the case.
    """
    made = TestCase(xml_text(name), xml_text(group), round(seconds, 3))
    if result is not None:
        told = result(xml_text(reason), kind or None)
        told.text = xml_text(reason)
        made.result = [told]
    if output:
        made.system_out = xml_text(output)
    return made


def case_of(verdict: Verdict, *, group: str, skipped: str = "") -> TestCase:
    """A gate's verdict, with the numbers that it rests on; `skipped` says why it does not count."""
    numbers = "\n".join(f"{name} = {number:.6g}" for name, number in verdict.numbers.items())
    output = f"{verdict.reason}\n{numbers}"
    if skipped:
        return case(group, verdict.gate, Skipped, reason=skipped, output=output)
    result = RESULTS.get(verdict.outcome, Error)
    return case(group, verdict.gate, result, kind=str(verdict.outcome), reason=verdict.reason, output=output)


def junit_xml(suites: Mapping[str, Sequence[TestCase]], *, seconds: float, since: datetime | None) -> str:
    """The whole document, of cases by suite; `seconds` is what the whole took."""
    document = JUnitXml()
    for name, cases in suites.items():
        suite = TestSuite(xml_text(name))
        suite.add_testcases(list(cases))
        if since is not None:
            suite.timestamp = f"{since:%Y-%m-%dT%H:%M:%S}"
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]  # junitparser annotates in part
    # The statistics add up cases, some of which went side by side.
    for each in (document, *document):
        each.time = round(seconds, 3)
    root = ElementTree.fromstring(document.tostring())  # type: ignore[no-untyped-call]
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
