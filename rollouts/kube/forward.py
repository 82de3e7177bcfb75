"""Services of a cluster at an address of this machine, through its API server, as `kubectl proxy` has them.

The API server keeps `Authorization` to itself, so that nothing of a credential reaches an engine. Whoever knows the
address may ask these Services and nothing else; it has a secret in its path, as others work on this machine too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from email.parser import BytesParser
from http import HTTPStatus
from secrets import token_urlsafe

import httpx

from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at
from rollouts.kube.resources import SERVICES
from tidegate.core.text import json_of

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LARGEST = 1 << 16
"""Bytes of a request's head."""
FAULTS = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, OSError, httpx.RequestError)
"""What breaks off in the middle; it ends so for the one who asked as well."""
PASSED = ("content-type", "retry-after", "retry-after-ms")


@asynccontextmanager
async def forwarding(cluster: KubeClient, services: Collection[str]) -> AsyncIterator[Mapping[str, str]]:
    """While the block lasts: by Service the address at which it answers. Nothing is sent before the first request."""
    secret, ports = token_urlsafe(16), dict[str, int]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _, head = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        method, target, _ = line.decode().split()
        headers = BytesParser().parsebytes(head, headersonly=True)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        _, said, service, path = target.split("/", 3)
        if said != secret or service not in services:
            return _say(writer, HTTPStatus.NOT_FOUND, b"no such address")
        if service not in ports:
            found = await cluster.get(SERVICES, service)
            ports[service] = int(at(found, "spec", "ports", 0, "port", default=80))
        there = f"{SERVICES.path(cluster.namespace, f'{service}:{ports[service]}', 'proxy')}/{path}"
        kept = {"Content-Type": headers.get("content-type", "application/json")}
        response = await cluster.stream(method, there, headers=kept, content=body)
        try:
            if response.status_code >= HTTPStatus.BAD_REQUEST and (told := _of_api_server(await response.aread())):
                ports.pop(service)
                return _say(writer, HTTPStatus.BAD_GATEWAY, told.encode())
            writer.write(_head(response.status_code, {key: response.headers.get(key, "") for key in PASSED}))
            async for part in response.aiter_bytes():
                writer.write(part)
                await writer.drain()
        finally:
            await response.aclose()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await forward(reader, writer)
        except FleetError as error:
            _say(writer, HTTPStatus.BAD_GATEWAY, str(error).encode())
        except FAULTS as error:
            log.info("a request through the API server broke off: %r", error)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0, limit=LARGEST)
    async with server:
        address = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/{secret}"
        yield {service: f"{address}/{service}" for service in services}


def _of_api_server(body: bytes) -> str:
    """Its own words, where it is what refuses; not those of an engine, of which they would say something."""
    with suppress(ValueError):
        found = json_of(body)
        if isinstance(found, dict) and found.get("kind") == "Status":
            return f"the API server: {found.get('message')}"
    return ""


def _say(writer: asyncio.StreamWriter, status: HTTPStatus, text: bytes) -> None:
    writer.write(_head(status, {"content-type": "text/plain; charset=utf-8"}) + text)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"{key}: {value}" for key, value in headers.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status} -", *lines, "connection: close", "", ""]).encode()
