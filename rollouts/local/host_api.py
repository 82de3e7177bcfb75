"""The fleet host's HTTP API: one route for each operation of a region, JSON both ways, errors that keep their class."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rollouts.errors import NotPossible, error_to_json
from rollouts.local.region import LocalRegion
from rollouts.local.watchdog import HeartbeatMonitor
from rollouts.model import Engine, RegionState
from rollouts.ports import Metrics
from tidegate.core.errors import TidegateError

FAILED = 409
"""The status of every answer that is an error; its class and words are in the body (`wire`). A 500 is a bug."""

Operation = Callable[[LocalRegion, Any], Awaitable[RegionState]]
"""Runs one operation with its JSON body; returns the state of the region once it is complete."""


async def _deploy(region: LocalRegion, body: Any) -> RegionState:
    return await region.deploy(Engine.model_validate(body))


async def _mirror(region: LocalRegion, body: Any) -> RegionState:
    return await region.mirror(body["percent"])


async def _shift(region: LocalRegion, body: Any) -> RegionState:
    return await region.shift(body["weight"])


async def _promote(region: LocalRegion, _: Any) -> RegionState:
    return await region.promote()


async def _rollback(region: LocalRegion, body: Any) -> RegionState:
    return await region.rollback(body["to"])


async def _settle(region: LocalRegion, _: Any) -> RegionState:
    await region.settle()
    return await region.observe()


async def _restart(region: LocalRegion, body: Any) -> RegionState:
    return await region.restart(body["version"])


OPERATIONS: Mapping[str, Operation] = {
    "deploy": _deploy,
    "mirror": _mirror,
    "shift": _shift,
    "promote": _promote,
    "rollback": _rollback,
    "settle": _settle,
    "restart": _restart,
}
"""The last part of an operation's URL, and what it does: one for each call of a fleet that changes something."""


class HostApp:
    """Answers for the regions of one host."""

    def __init__(
        self,
        regions: Mapping[str, LocalRegion],
        metrics: Metrics,
        *,
        heartbeat: HeartbeatMonitor,
        stop: Callable[[], None],
    ) -> None:
        """`stop` is called when somebody asks the host to end; it returns at once."""
        self._regions = regions
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._stop = stop

    def build(self) -> Starlette:
        """The application to serve."""
        return Starlette(
            routes=[
                Route("/regions/{region}", self._observe),
                Route("/regions/{region}/way-back", self._way_back),
                Route("/regions/{region}/{operation}", self._operate, methods=["POST"]),
                Route("/rules", self._load_rules, methods=["POST"]),
                Route("/scrape", self._scrape_also, methods=["POST"]),
                Route("/forget", self._forget, methods=["POST"]),
                Route("/carried", self._carried),
                Route("/carried", self._hear, methods=["POST"]),
                Route("/stop", self._end, methods=["POST"]),
            ],
            exception_handlers={TidegateError: _say_why},
        )

    async def _observe(self, request: Request) -> Response:
        return _state(await self._region(request).observe())

    async def _way_back(self, request: Request) -> Response:
        return JSONResponse({"version": await self._region(request).way_back()})

    async def _operate(self, request: Request) -> Response:
        operation = OPERATIONS[request.path_params["operation"]]
        body = await request.json()
        return _state(await operation(self._region(request), body))

    async def _load_rules(self, request: Request) -> Response:
        await self._metrics.load_rules((await request.json())["text"])
        return JSONResponse({})

    async def _scrape_also(self, request: Request) -> Response:
        body = await request.json()
        self._metrics.scrape_also(body["name"], body["address"])
        return JSONResponse({})

    async def _forget(self, request: Request) -> Response:
        self._metrics.forget((await request.json())["name"])
        return JSONResponse({})

    async def _carried(self, _: Request) -> Response:
        last = self._heartbeat.last
        return JSONResponse(last.model_dump(mode="json") if last else None)

    async def _hear(self, request: Request) -> Response:
        """A sign of life; without a name that it was the last one."""
        body = await request.json()
        if body["who"]:
            seconds = float(body["unattended_seconds"])
            self._heartbeat.record(body["who"], seconds, process=int(body["process"]))
        else:
            self._heartbeat.clear()
        return JSONResponse({})

    async def _end(self, _: Request) -> Response:
        """Only pass it on: the one who asked waits until the host's lock is free."""
        self._stop()
        return JSONResponse({})

    def _region(self, request: Request) -> LocalRegion:
        name = request.path_params["region"]
        if name not in self._regions:
            raise NotPossible(f"there is no region {name} here", hint=f"there are: {', '.join(self._regions)}")
        return self._regions[name]


def _state(state: RegionState) -> Response:
    return JSONResponse(state.model_dump(mode="json"))


async def _say_why(_: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)
    return JSONResponse(error_to_json(error), status_code=FAILED)
