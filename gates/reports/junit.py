"""JUnit XML, the one report that every CI system reads.

A case without a verdict is an `error`, not `skipped`: CI shows skipped tests as if nothing were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from xml.etree import ElementTree

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from gates.model import GateOutcome, GateVerdict, Verdict
from tidegate.core.model import Value


def xml_text(text: str) -> str:
    """Without characters that XML cannot hold; a reason may quote what a source wrote into `missing`."""
    return re.sub(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


class Mark(StrEnum):
    """How CI shows a case."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


MARK_OF = {GateOutcome.PASS: Mark.PASSED, GateOutcome.FAIL: Mark.FAILED}
"""Every other outcome is an error: it is unknown whether all is well."""

RESULTS: Mapping[Mark, type[FinalResult]] = {Mark.FAILED: Failure, Mark.ERROR: Error, Mark.SKIPPED: Skipped}


class Case(Value):
    """One thing that went well or did not."""

    group: str
    """What CI lists it under, as it does classes of tests."""
    name: str
    mark: Mark
    kind: str = ""
    """The word for what went wrong, such as `inconclusive`."""
    reason: str = ""
    seconds: float = 0.0
    output: str = ""
    """For the one who opens the case."""


class Suite(Value):
    """Cases that belong together."""

    name: str
    cases: tuple[Case, ...]
    seconds: float
    since: datetime | None = None


def case_of(verdict: GateVerdict | Verdict, *, group: str) -> Case:
    """A gate's verdict, with the numbers that it rests on."""
    numbers = "\n".join(f"{name} = {number:.6g}" for name, number in verdict.numbers.items())
    return Case(
        group=group,
        name=verdict.gate,
        mark=MARK_OF.get(verdict.outcome, Mark.ERROR),
        kind=str(verdict.outcome),
        reason=verdict.reason,
        output=f"{verdict.reason}\n{numbers}",
    )


def junit_xml(suites: Sequence[Suite]) -> str:
    """The whole document."""
    document = JUnitXml()
    for suite in suites:
        document.add_testsuite(_suite(suite))
    document.update_statistics()  # type: ignore[no-untyped-call]  # junitparser annotates in part
    # The statistics add up cases, some of which went side by side.
    for made, suite in zip(document, suites, strict=True):
        made.time = round(suite.seconds, 3)
    document.time = round(max((suite.seconds for suite in suites), default=0.0), 3)
    root = ElementTree.fromstring(document.tostring())  # type: ignore[no-untyped-call]
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(suite: Suite) -> TestSuite:
    made = TestSuite(xml_text(suite.name))
    made.add_testcases([_case(case) for case in suite.cases])
    if suite.since is not None:
        made.timestamp = f"{suite.since:%Y-%m-%dT%H:%M:%S}"
    return made


def _case(case: Case) -> TestCase:
    made = TestCase(xml_text(case.name), xml_text(case.group), round(case.seconds, 3))
    result = RESULTS.get(case.mark)
    if result is not None:
        told = result(xml_text(case.reason), case.kind or None)
        told.text = xml_text(case.reason)
        made.result = [told]
    if case.output:
        made.system_out = xml_text(case.output)
    return made
