"""`gate serve` as a web application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gates.model import GateOutcome
from gates.sessions.model import SessionAnswer, TooManySessions
from gates.sessions.registry import Sessions
from pipelines.judging.questions import FLAGGER_YES, CanaryQuestion, FlaggerHook, FlaggerPayload, read_body, wrong
from pipelines.triggers.access import behind_door
from pipelines.triggers.app import ALIVE, alive_route, bounded_body, metrics_route
from tidegate.core.errors import OutsideError, TidegateError, UsageError
from tidegate.core.spec import SpecError

VERDICT, CONCLUSION, CLOSE, SESSIONS, FLAGGER = (
    "/v1/verdict",
    "/v1/conclusion",
    "/v1/close",
    "/v1/sessions",
    "/v1/flagger/{hook}",
)
MOST_BYTES = 16 * 1024
"""Of a body; a key is below 2 KB."""


class Oversize(UsageError):
    """A body is larger than any question."""


class JudgeMetrics(Collector):
    """Computed only when somebody asks."""

    def __init__(self, sessions: Sessions) -> None:
        """Nothing was asked yet."""
        self.answered: Counter[tuple[str, str]] = Counter()
        """By path and outcome, or the name of what was wrong."""
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        answered = CounterMetricFamily(
            "tidegate_gate_serve_answers", "Questions by what they were answered.", labels=["path", "outcome"]
        )
        for (path, outcome), count in sorted(self.answered.items()):
            answered.add_metric([path, outcome], count)
        yield answered
        yield GaugeMetricFamily("tidegate_gate_serve_sessions", "Sessions that stand.", self._sessions.count())
        outcomes = GaugeMetricFamily(
            "tidegate_gate_serve_outcomes", "Sessions that were asked since the start, by outcome.", labels=["outcome"]
        )
        last = Counter(answer.outcome for answer in self._sessions.standing())
        for each in GateOutcome:
            outcomes.add_metric([str(each)], last[each])
        yield outcomes


class JudgeApp:
    """What is answered to whom."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        retry_seconds: float,
        needs_region: bool,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`retry_seconds` is when a verdict can be another one; `needs_region` when series have a label for it.

        `refused` hears why a question was refused: Argo Rollouts shows the status of an answer, and no more of it.
        """
        self._refused = refused
        self._sessions, self._retry, self._needs_region = sessions, max(round(retry_seconds), 1), needs_region
        self.metrics = JudgeMetrics(sessions)

    def behind_door(self, *, hosts: Collection[str], password: str | None) -> Starlette:
        """The application; whether it is alive, anyone may ask."""
        posts = {VERDICT: self._verdict, CONCLUSION: self._conclusion, CLOSE: self._close, FLAGGER: self._flagger}
        routes = [Route(path, self._told(path, answer), methods=["POST"]) for path, answer in posts.items()]
        routes += [
            Route(path, self._told(path, answer), methods=["GET"])
            for path, answer in {VERDICT: self._verdict, CONCLUSION: self._conclusion, SESSIONS: self._listed}.items()
        ]
        routes += [alive_route(), metrics_route(self.metrics)]
        return behind_door(routes, hosts=hosts, password=password, open_to_all=(ALIVE,))

    def _told(self, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], object]:
        """With what is wrong as JSON: Argo Rollouts takes any other body for a success."""

        async def told(request: Request) -> Response:
            try:
                return await answer(request)
            except (TidegateError, TimeoutError, ClientDisconnect) as error:
                status = _status(error)
                self.metrics.answered[path, status.phrase.lower()] += 1
                problem = error.message if isinstance(error, TidegateError) else "the body did not come in time"
                hint = error.hint if isinstance(error, TidegateError) else None
                self._refused(f"{path}: {status}: {problem}" + (f"; {hint}" if hint else ""))
                again = {"Retry-After": str(self._retry)} if status in _PASSING else {}
                return JSONResponse({"outcome": "error", "problem": problem, "hint": hint}, status, again)

        return told

    async def _verdict(self, request: Request) -> Response:
        """200 with a verdict in it, but 503 while it is an error: Argo Rollouts counts that as one, and asks again."""
        return self._held_back(await self._asked(VERDICT, await self._question(request)), GateOutcome.ERROR)

    async def _conclusion(self, request: Request) -> Response:
        """503 for as long as it is running, so that who asks tries again."""
        answer = await self._asked(CONCLUSION, await self._question(request))
        return self._held_back(answer, GateOutcome.RUNNING, GateOutcome.ERROR)

    def _held_back(self, answer: SessionAnswer, *outcomes: GateOutcome) -> Response:
        if answer.outcome in outcomes:
            return _as_json(answer, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": str(self._retry)})
        return _as_json(answer)

    async def _flagger(self, request: Request) -> Response:
        hooks = {str(hook): hook for hook in FlaggerHook}
        hook = hooks.get(said := request.path_params["hook"])
        if hook is None:
            raise UsageError(f"unknown webhook {said[:40]!r}", hint=f"known: {', '.join(hooks)}")
        payload = read_body(FlaggerPayload, await _body(request))
        try:
            question = payload.question
        except ValidationError as error:
            raise UsageError(f"metadata: {wrong(error, CanaryQuestion)}") from error
        path = FLAGGER.format(hook=hook)
        if hook is FlaggerHook.POST_ROLLOUT:
            return await self._closed(question)
        answer = await self._asked(path, question)
        return _as_json(answer, HTTPStatus.OK if FLAGGER_YES[hook](answer.outcome) else HTTPStatus.PRECONDITION_FAILED)

    async def _close(self, request: Request) -> Response:
        return await self._closed(await self._question(request))

    async def _closed(self, question: CanaryQuestion) -> Response:
        return JSONResponse({"closed": await run_in_threadpool(self._sessions.close, question.key)})

    async def _listed(self, _: Request) -> Response:
        standing = await run_in_threadpool(self._sessions.standing)
        return JSONResponse([answer.model_dump(mode="json") for answer in standing])

    async def _question(self, request: Request) -> CanaryQuestion:
        if request.method == "POST":
            return read_body(CanaryQuestion, await _body(request))
        try:
            return CanaryQuestion(**dict(request.query_params))
        except ValidationError as error:
            raise wrong(error, CanaryQuestion) from error

    async def _asked(self, path: str, question: CanaryQuestion) -> SessionAnswer:
        if self._needs_region and not question.region:
            raise UsageError(
                "region: field required", hint="`metrics.sources` names a label for it, so say which region"
            )
        answer = await run_in_threadpool(self._sessions.ask, question.key, weight=question.weight)
        self.metrics.answered[path, str(answer.outcome)] += 1
        return answer


async def _body(request: Request) -> bytes:
    if (body := await bounded_body(request, MOST_BYTES)) is None:
        raise Oversize(f"a body of more than {MOST_BYTES:,} bytes", hint="send the key of one canary")
    return body


def _as_json(
    answer: SessionAnswer, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    return JSONResponse(answer.model_dump(mode="json"), status, headers)


_PASSING = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


def _status(error: Exception) -> HTTPStatus:
    kinds: dict[type[Exception], HTTPStatus] = {
        TooManySessions: HTTPStatus.TOO_MANY_REQUESTS,
        Oversize: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        # What is wrong is on our disk; the one who asks can do nothing about it.
        SpecError: HTTPStatus.INTERNAL_SERVER_ERROR,
        UsageError: HTTPStatus.BAD_REQUEST,
        OutsideError: HTTPStatus.SERVICE_UNAVAILABLE,
        TimeoutError: HTTPStatus.REQUEST_TIMEOUT,
        ClientDisconnect: HTTPStatus.BAD_REQUEST,
    }
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
