"""An AnalysisRun with `web` metrics as Argo Rollouts runs it, in its controller's place.

After argoproj/argo-rollouts: `metricproviders/webmetric/webmetric.go` (the request, the answer, JSONPath),
`utils/evaluate/evaluate.go` (conditions) and `analysis/analysis.go` (`runMeasurements`, `assessMetricStatus`). Of
conditions it knows comparisons, `in`, `&&` and `||`; of JSONPath, the keys of objects.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["Successful", "Failed", "Inconclusive", "Error"]
Send = Callable[[str, str, Mapping[str, str], bytes], tuple[int, bytes]]
"""Method, address, headers and body; status and body of the answer. Raises OSError when nobody answers."""

USUAL_ERRORS = 4
"""`DefaultConsecutiveErrorLimit`."""


def evaluated(condition: str, result: Any) -> bool:
    """`EvalCondition`: raises when it is no condition about `result`."""
    tree = ast.parse(condition.replace("&&", " and ").replace("||", " or "), mode="eval").body
    return bool(_value(tree, result))


def _value(node: ast.expr, result: Any) -> Any:
    if isinstance(node, ast.Name) and node.id == "result":
        return result
    if isinstance(node, ast.Attribute):
        return _value(node.value, result)[node.attr]
    if isinstance(node, ast.BoolOp):
        both = all if isinstance(node.op, ast.And) else any
        return both(_value(part, result) for part in node.values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _value(node.left, result), _value(node.comparators[0], result)
        if isinstance(node.ops[0], ast.In):
            return left in right
        return (left == right) is isinstance(node.ops[0], ast.Eq)
    return ast.literal_eval(node)


def evaluate_result(result: Any, metric: Mapping[str, Any]) -> Phase:
    """`EvaluateResult`."""
    success, failure = metric.get("successCondition", ""), metric.get("failureCondition", "")
    succeeded = bool(success) and evaluated(success, result)
    failed = bool(failure) and evaluated(failure, result)
    if not success and not failure:
        return "Successful"
    if not failure:
        failed = not succeeded
    if not success:
        succeeded = not failed
    return "Failed" if failed else "Successful" if succeeded else "Inconclusive"


def measured(metric: Mapping[str, Any], send: Send) -> tuple[Phase, str]:
    """`Provider.Run` and `parseResponse`: the phase, and the value or what was wrong."""
    web = metric["provider"]["web"]
    method, body = web.get("method", "GET"), web.get("jsonBody")
    if body is not None and method == "GET":
        return "Error", "Body/JSONBody can only be used with POST or PUT WebMetric Method types"
    headers = {header["key"]: header["value"] for header in web.get("headers", ())}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        status, answer = send(method, web["url"], headers, b"" if body is None else json.dumps(body).encode())
    except OSError as error:
        return "Error", str(error)
    if not 200 <= status < 300:
        return "Error", f"received non 2xx response code: {status}"
    try:
        data = json.loads(answer)
    except ValueError:
        # Whatever the conditions are.
        return "Successful", answer.decode()
    try:
        value = _found(data, web.get("jsonPath", "{$}"))
    except KeyError as error:
        return "Error", f"Could not find JSONPath in body: {error}"
    return evaluate_result(value, metric), json.dumps(value)


def _found(data: Any, path: str) -> Any:
    keys = re.fullmatch(r"\{\$((?:\.\w+)*)\}", path)
    assert keys is not None, f"a path that this stand-in does not know: {path}"
    for key in keys[1].split(".")[1:]:
        data = data[key]
    return data


@dataclass
class AnalysisRun:
    """One metric of a template, measured when `measure` is called: once an interval."""

    template: Mapping[str, Any]
    args: Mapping[str, str]
    send: Send
    counts: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0
    """How many of the last phase there were one after the other."""
    phase: str = "Running"
    last: str = ""
    """The phase of the last measurement."""
    values: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        wanted = {arg["name"] for arg in self.template["spec"]["args"]}
        assert set(self.args) == wanted, "the controller refuses a run whose arguments are not those of the template"
        text = json.dumps(self.template["spec"]["metrics"][0])
        self.metric = json.loads(re.sub(r"\{\{args\.(\w+)\}\}", lambda found: self.args[found[1]], text))

    def measure(self) -> str:
        """One measurement more, unless the run is over; the run's phase."""
        if self.phase != "Running":
            return self.phase
        measurement, value = measured(self.metric, self.send)
        self.values.append(value)
        self.counts[measurement] += 1
        self.in_a_row = self.in_a_row + 1 if measurement == self.last else 1
        self.last = measurement
        self.phase = self._assessed()
        return self.phase

    def terminate(self) -> str:
        """The Rollout has done its last step."""
        self.phase = "Successful" if self.phase == "Running" else self.phase
        return self.phase

    def _assessed(self) -> str:
        """`assessMetricStatus`."""
        metric = self.metric
        for phase, limit in (("Failed", "failureLimit"), ("Inconclusive", "inconclusiveLimit")):
            if self.counts[phase] > metric.get(limit, 0):
                return phase
        if self.last == "Error" and self.in_a_row > metric.get("consecutiveErrorLimit", USUAL_ERRORS):
            return "Error"
        successes = metric.get("consecutiveSuccessLimit", 0)
        if successes and self.last == "Successful" and self.in_a_row >= successes:
            return "Successful"
        # An error is no measurement that counts.
        measurements = self.counts.total() - self.counts["Error"]
        count = metric.get("count", None if "interval" in metric else 1)
        if count is None or measurements < count:
            return "Running"
        return "Inconclusive" if successes else "Successful"
