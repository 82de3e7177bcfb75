"""Flagger's calls of a Canary's webhooks, in its controller's place.

After fluxcd/flagger: `pkg/controller/webhook.go` (`CallWebhook`: a POST of `CanaryWebhookPayload`; a status above 202
is a no) and `pkg/controller/scheduler.go` and `scheduler_hooks.go` (which hooks are called in which order).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Send = Callable[[str, str, Mapping[str, str], bytes], tuple[int, bytes]]


@dataclass
class Canary:
    """A Canary whose traffic is at its last weight: from there it is promoted, or rolled back."""

    spec: Mapping[str, Any]
    checksum: str
    send: Send
    phase: str = "Progressing"
    begun: bool = False
    failed_checks: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)

    def advance(self) -> str:
        """`advanceCanary`, once an interval: the phase after it."""
        if self.phase in ("Succeeded", "Failed"):
            return self.phase
        if any(self.ask("rollback")) or self.failed_checks >= self.spec["spec"]["analysis"]["threshold"]:
            return self._ended("Failed")
        if not self.begun:
            self.begun = all(self.ask("pre-rollout"))
            self.failed_checks += not self.begun
        elif not all(self.ask("rollout")):
            self.failed_checks += 1
        elif all(self.ask("confirm-promotion")):
            return self._ended("Succeeded")
        else:
            self.phase = "WaitingPromotion"
        return self.phase

    def _ended(self, phase: str) -> str:
        self.phase = phase
        list(self.ask("post-rollout"))
        return phase

    def ask(self, kind: str) -> list[bool]:
        """What the webhooks of a type say."""
        webhooks = self.spec["spec"]["analysis"]["webhooks"]
        return [self._call(webhook) for webhook in webhooks if webhook["type"] == kind]

    def _call(self, webhook: Mapping[str, Any]) -> bool:
        payload = {
            "name": self.spec["metadata"]["name"],
            "namespace": self.spec["metadata"]["namespace"],
            "phase": self.phase,
            "checksum": self.checksum,
            "metadata": webhook.get("metadata", {}),
        }
        address = urlsplit(webhook["url"])
        headers = {"Content-Type": "application/json"}
        if address.username is not None:
            # Go's client does so with the name and password of an address.
            said = b64encode(f"{address.username}:{address.password}".encode()).decode()
            headers["Authorization"] = f"Basic {said}"
        where = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        try:
            status, _ = self.send("POST", where, headers, json.dumps(payload).encode())
        except OSError:
            status = 0
        self.asked.append((webhook["type"], status))
        return 0 < status <= 202
