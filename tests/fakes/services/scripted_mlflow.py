"""An MLflow server that gives the answers that it was told to give."""

from __future__ import annotations

import httpx

from registry.adapters.mlflow_address import MlflowAccess
from registry.adapters.mlflow_http import MlflowServer


class ScriptedMlflow:
    """One answer after the other, the last one for ever; notes the requests, and the pauses between them."""

    def __init__(self, *answers: httpx.Response | Exception, access: MlflowAccess | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self._answers = list(answers)
        access = access or MlflowAccess(url="http://mlflow:5000")
        self.server = MlflowServer(access, transport=httpx.MockTransport(self._answer), sleep=self.pauses.append)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
