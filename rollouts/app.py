"""The fleet host's HTTP: one route for each wish, JSON both ways, errors that keep their class."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rollouts.errors import NotPossible
from rollouts.model import Engine, RegionState
from rollouts.ports import Metrics
from rollouts.region import Region
from rollouts.wire import pack
from tidegate.core.errors import TidegateError

FAILED = 409
"""The status of every answer that is an error; its class and words are in the body (`wire`). A 500 is a bug."""

Wish = Callable[[Region, Any], Awaitable[RegionState]]
"""Fulfils one wish with its JSON body; returns what the region looks like once it holds."""


async def _deploy(region: Region, body: Any) -> RegionState:
    return await region.deploy(Engine.model_validate(body))


async def _mirror(region: Region, body: Any) -> RegionState:
    return await region.mirror(body["percent"])


async def _shift(region: Region, body: Any) -> RegionState:
    return await region.shift(body["weight"])


async def _promote(region: Region, _: Any) -> RegionState:
    return await region.promote()


async def _rollback(region: Region, body: Any) -> RegionState:
    return await region.rollback(body["to"])


WISHES: Mapping[str, Wish] = {
    "deploy": _deploy,
    "mirror": _mirror,
    "shift": _shift,
    "promote": _promote,
    "rollback": _rollback,
}
"""The last part of a wish's URL, and what it does: one for each call of the port `Fleet`."""


class HostApp:
    """Answers for the regions of one host."""

    def __init__(self, regions: Mapping[str, Region], metrics: Metrics, *, stop: Callable[[], None]) -> None:
        """`stop` is called when somebody asks the host to end; it returns at once."""
        self._regions = regions
        self._metrics = metrics
        self._stop = stop

    def build(self) -> Starlette:
        """The application to serve."""
        return Starlette(
            routes=[
                Route("/regions/{region}", self._observe),
                Route("/regions/{region}/{wish}", self._fulfil, methods=["POST"]),
                Route("/rules", self._load_rules, methods=["POST"]),
                Route("/scrape", self._scrape_also, methods=["POST"]),
                Route("/forget", self._forget, methods=["POST"]),
                Route("/stop", self._end, methods=["POST"]),
            ],
            exception_handlers={TidegateError: _say_why},
        )

    async def _observe(self, request: Request) -> Response:
        return _state(await self._region(request).observe())

    async def _fulfil(self, request: Request) -> Response:
        wish = WISHES[request.path_params["wish"]]
        body = await request.json()
        return _state(await wish(self._region(request), body))

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

    async def _end(self, _: Request) -> Response:
        """Only pass it on: whoever asked waits until the host's lock is free."""
        self._stop()
        return JSONResponse({})

    def _region(self, request: Request) -> Region:
        name = request.path_params["region"]
        if name not in self._regions:
            raise NotPossible(f"there is no region {name} here", hint=f"there are: {', '.join(self._regions)}")
        return self._regions[name]


def _state(state: RegionState) -> Response:
    return JSONResponse(state.model_dump(mode="json"))


async def _say_why(_: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)
    return JSONResponse(pack(error), status_code=FAILED)
