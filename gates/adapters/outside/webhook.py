"""Asks a web service: the question as JSON by POST, the answer as the JSON of its response.

A header's secret goes to the address that the spec names and nowhere else: no redirect is followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from gates.adapters.outside.kept import KEPT_CHARACTERS, MOST_BYTES
from gates.analyses.outside.answer import Question, Reply, answer_in
from gates.analyses.outside.spec import WebhookGate
from gates.errors import NotAnswered
from tidegate.core.access.secrets import scrubbed
from tidegate.core.metadata_servers import async_request_hook
from tidegate.core.text import host_of

SET = "set it where the step runs"
KEPT = "what it said is kept as outside/STEP.GATE.txt of the delivery"
SHORTER = "answer with scores, without what they were given for"
THERE = "see that it is reached from where the step runs"
BUSY = httpx.codes.TOO_MANY_REQUESTS


class Webhook:
    """An `OutsideSource`: one request for each question."""

    def __init__(
        self,
        settings: WebhookGate,
        environment: Mapping[str, str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` is for tests."""
        self._settings, self._environment, self._transport = settings, environment, transport

    async def ask(self, question: Question, *, seconds: float) -> Reply:
        """As `OutsideSource`."""
        secret = self._secret()
        most = min(seconds, self._settings.timeout.total_seconds())
        try:
            async with asyncio.timeout(most):
                status, body = await self._posted(question, {self._settings.header: secret} if secret else {})
        except TimeoutError as error:
            hint = "give it more time by `timeout`, or let it answer `running`"
            raise NotAnswered(f"no answer within {most:.0f} s", again=True, hint=hint) from error
        except httpx.TransportError as error:
            host = host_of(self._settings.url)
            raise NotAnswered(f"{host} was not reached ({type(error).__name__})", again=True, hint=THERE) from None
        text = scrubbed(body.decode(errors="replace"), [secret])
        output = f"status {status}\n{text[-KEPT_CHARACTERS:]}"
        if status != httpx.codes.OK:
            again = status == BUSY or status >= httpx.codes.INTERNAL_SERVER_ERROR
            raise NotAnswered(
                f"it answers {status}, which says nothing of the version", again=again, hint=KEPT, output=output
            )
        try:
            return Reply(answer=answer_in(text), output=output)
        except ValueError as error:
            raise NotAnswered(f"its answer cannot be read: {error}", again=False, hint=KEPT, output=output) from error

    def _secret(self) -> str:
        name = self._settings.secret_env
        if name is None:
            return ""
        found = self._environment.get(name, "")
        if not found or not found.isprintable() or not found.isascii():
            raise NotAnswered(
                f"the variable {name} is empty or has characters that a header cannot have", again=False, hint=SET
            )
        return found

    async def _posted(self, question: Question, headers: Mapping[str, str]) -> tuple[int, bytes]:
        hooks = {"request": [async_request_hook()]}
        async with httpx.AsyncClient(
            transport=self._transport, follow_redirects=False, timeout=None, event_hooks=hooks
        ) as client:
            asked = client.stream("POST", self._settings.url, json=question.model_dump(mode="json"), headers=headers)
            async with asked as response:
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise NotAnswered(f"it says more than {MOST_BYTES >> 20} MiB", again=False, hint=SHORTER)
                return response.status_code, body
