"""`gate serve` as a web application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gates.trials import Answer, Judge, Question
from pipelines.judging.questions import FLAGGER_YES, FlaggerPayload, read_body, wrong
from pipelines.triggers.app import ALIVE, alive_route, behind_door, bounded_body, metrics_route
from tidegate.core.errors import TidegateError, UsageError

VERDICT, FLAGGER = "/v1/verdict", "/v1/flagger/{hook}"
MOST_BYTES = 16 * 1024
"""Of a body; a question is below 2 KB."""


class Oversize(UsageError):
    """A body is larger than any question."""


class JudgeApp(Collector):
    """What is answered to whom."""

    def __init__(self, judge: Judge, *, needs_region: bool, refused: Callable[[str], None] = lambda _: None) -> None:
        """`needs_region` when series have a label for it.

        `refused` hears why a question was refused: Argo Rollouts shows the status of such an answer, and no more of it.
        """
        self._judge, self._needs_region, self._refused = judge, needs_region, refused
        self._answered: Counter[tuple[str, str]] = Counter()
        """By path and outcome, or the name of what was wrong."""

    def collect(self) -> Iterable[Metric]:
        """Computed only when somebody asks."""
        answered = CounterMetricFamily(
            "tidegate_gate_serve_answers", "Questions by what they were answered.", labels=["path", "outcome"]
        )
        for (path, outcome), count in sorted(self._answered.items()):
            answered.add_metric([path, outcome], count)
        yield answered

    def behind_door(self, *, hosts: Collection[str], password: str | None) -> Starlette:
        """The application; whether it is alive, anyone may ask."""
        verdict = self._told(VERDICT, self._verdict)
        routes = [
            Route(VERDICT, verdict, methods=["GET", "POST"]),
            Route(FLAGGER, self._told(FLAGGER, self._flagger), methods=["POST"]),
            alive_route(),
            metrics_route(self),
        ]
        return behind_door(routes, hosts=hosts, password=password, open_to_all=(ALIVE,))

    def _told(self, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], object]:
        """With what is wrong as JSON: Argo Rollouts takes any other body for a success."""

        async def told(request: Request) -> Response:
            try:
                return await answer(request)
            except (UsageError, TimeoutError, ClientDisconnect) as error:
                status = _status(error)
                self._answered[path, status.phrase.lower()] += 1
                problem = error.message if isinstance(error, TidegateError) else "the body did not come in time"
                hint = error.hint if isinstance(error, TidegateError) else None
                self._refused(f"{path}: {status}: {problem}" + (f"; {hint}" if hint else ""))
                return JSONResponse({"outcome": "error", "problem": problem, "hint": hint}, status)

        return told

    async def _verdict(self, request: Request) -> Response:
        """200 with the verdict, whatever it is: of any other answer Argo Rollouts drops the body."""
        if request.method == "POST":
            question = read_body(Question, await _body(request))
        else:
            try:
                question = Question(**dict(request.query_params))
            except ValidationError as error:
                raise wrong(error, Question) from error
        return _as_json(await self._asked(VERDICT, question))

    async def _flagger(self, request: Request) -> Response:
        hook = request.path_params["hook"]
        if hook not in FLAGGER_YES:
            raise UsageError(f"unknown webhook {hook[:40]!r}", hint=f"known: {', '.join(FLAGGER_YES)}")
        payload = read_body(FlaggerPayload, await _body(request))
        try:
            question = payload.question
        except ValidationError as error:
            raise UsageError(f"metadata: {wrong(error, Question)}") from error
        answer = await self._asked(FLAGGER.format(hook=hook), question)
        return _as_json(answer, HTTPStatus.OK if FLAGGER_YES[hook](answer.outcome) else HTTPStatus.PRECONDITION_FAILED)

    async def _asked(self, path: str, question: Question) -> Answer:
        if self._needs_region and not question.region:
            raise UsageError(
                "region: field required", hint="`metrics.sources` names a label for it, so say which region"
            )
        answer = await run_in_threadpool(self._judge.ask, question)
        self._answered[path, str(answer.outcome)] += 1
        return answer


async def _body(request: Request) -> bytes:
    if (body := await bounded_body(request, MOST_BYTES)) is None:
        raise Oversize(f"a body of more than {MOST_BYTES:,} bytes", hint="send the question about one canary")
    return body


def _as_json(answer: Answer, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return JSONResponse(answer.model_dump(mode="json"), status)


def _status(error: Exception) -> HTTPStatus:
    if isinstance(error, Oversize):
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return HTTPStatus.REQUEST_TIMEOUT if isinstance(error, TimeoutError) else HTTPStatus.BAD_REQUEST
