"""Whether the cloud has announced that it takes this machine away. Off unless asked for.

AWS (IMDSv2) announces two minutes before, Google Cloud thirty seconds before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

PATIENCE_SECONDS = 2.0
POLL_SECONDS = 5.0
"""As AWS recommends."""

AWS = "http://169.254.169.254"
GCP = "http://metadata.google.internal"
GCP_SECONDS = 30.0
RESERVE_SECONDS = 5.0
"""Of the announced time, for vLLM to end."""

# The metadata server is on this machine's own link: no proxy leads there.
_OPENER = build_opener(ProxyHandler({}))


@dataclass(frozen=True)
class Notice:
    """The machine goes away."""

    seconds: float
    """Until then, less a reserve."""
    said: str


class Aws:
    """EC2 spot instances: `spot/instance-action` is there once the instance is to be taken."""

    def __init__(self, url: str = AWS) -> None:
        self._url = url

    def notice(self) -> Notice | None:
        """What is announced.

        Raises:
            OSError: the metadata server does not answer.
        """
        token = _ask(f"{self._url}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
        said = _ask(f"{self._url}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token or ""})
        if said is None:
            return None
        at = datetime.strptime(json.loads(said)["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)  # noqa: UP017
        left = (at - datetime.now(timezone.utc)).total_seconds()  # noqa: UP017 (Python 3.10)
        return Notice(max(0.0, left - RESERVE_SECONDS), said)


class Gcp:
    """Compute Engine spot machines: `preempted` turns to TRUE."""

    def __init__(self, url: str = GCP) -> None:
        self._url = url

    def notice(self) -> Notice | None:
        """What is announced.

        Raises:
            OSError: the metadata server does not answer.
        """
        said = _ask(f"{self._url}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        return Notice(GCP_SECONDS - RESERVE_SECONDS, "preempted") if said == "TRUE" else None


Cloud = Aws | Gcp


def _ask(url: str, headers: dict[str, str], method: str = "GET") -> str | None:
    """The text at `url`; None when there is nothing (404)."""
    try:
        with _OPENER.open(Request(url, headers=headers, method=method), timeout=PATIENCE_SECONDS) as response:
            return str(response.read().decode().strip())
    except HTTPError as error:
        if error.code == 404:
            return None
        raise
    except HTTPException as error:
        raise OSError(str(error)) from error
