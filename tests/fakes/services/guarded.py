"""A Prometheus behind a door: it answers a query only to the one who says who asks, and repeats what it was sent.

The signature of AWS is computed again from the request as it arrived, with the secret key.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fakes.services.http import QuietHandler, answering

Headers = dict[str, str]
"""By names in lower case."""


@dataclass
class Door:
    """Where it answers, who is let in, and what was heard."""

    opens: Callable[[str, str, Headers], bool]
    """Of the method, the address and the headers."""
    address: str = ""
    moved_to: str = ""
    """Where it sends everybody; itself when empty."""
    heard: list[Headers] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


ANSWER = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}}


@contextmanager
def guarded(opens: Callable[[str, str, Headers], bool], *, moved_to: str = "") -> Iterator[Door]:
    """A server on the loopback."""
    door = Door(opens, moved_to=moved_to)

    class Behind(QuietHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            with door.lock:
                door.heard.append(headers)
            if door.moved_to:
                self.answer(status=307, location=f"{door.moved_to}{self.path}")
            elif door.opens("GET", f"http://{headers['host']}{self.path}", headers):
                self.answer(json.dumps(ANSWER))
            else:
                self.answer(f"who are you? you sent {json.dumps(headers)}", status=401)

    with answering(Behind) as address:
        door.address = f"http://{address}"
        yield door


def signed_with(
    access_key: str, secret_key: str, *, region: str, service: str = "aps", token: str = ""
) -> Callable[[str, str, Headers], bool]:
    """Whether botocore, given the request and the secret key, comes to the same signature."""

    def opens(method: str, url: str, headers: Headers) -> bool:
        said = headers.get("authorization", "")
        if f"Credential={access_key}/" not in said or headers.get("x-amz-security-token", "") != token:
            return False
        names = said.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        kept = {name: headers[name] for name in names if name in headers and name not in _OWN}
        request = AWSRequest(method=method, url=url, headers=kept)
        at = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        with patch("botocore.auth.get_current_datetime", lambda *_: at):
            SigV4Auth(Credentials(access_key, secret_key, token or None), service, region).add_auth(request)
        fresh = abs((datetime.now(UTC).replace(tzinfo=None) - at).total_seconds()) < 300
        return fresh and urlsplit(url).query != "" and request.headers["Authorization"] == said

    return opens


_OWN = ("host", "x-amz-date", "x-amz-security-token")
"""What the signer writes itself."""
