"""Messages by HTTP. An address is a secret: no error, log line or traceback of this module holds one."""

from __future__ import annotations

import logging

import httpx

from pipelines.views.notifications import Body, NotTaken

TIMEOUT_SECONDS = 5.0
TOO_MANY = 429
NO_URL = "the variable holds no http or https URL"

# It logs the URL of every request at the level INFO.
logging.getLogger("httpx").addFilter(lambda record: record.levelno >= logging.WARNING)


def post(url: str, body: Body, transport: httpx.BaseTransport | None = None) -> None:
    """Post JSON once. It follows no redirect: the body is for the address that was named.

    Args:
        url: the address.
        body: what is posted.
        transport: is for tests.

    Raises:
        NotTaken: no answer, or one that is no success.
    """
    try:
        with httpx.Client(transport=transport, timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            status = client.post(url, json=body).status_code
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
        again, reason = False, NO_URL
    except httpx.TransportError as error:
        again, reason = True, f"no answer ({type(error).__name__})"
    else:
        if 200 <= status < 300:
            return
        again, reason = status == TOO_MANY or status >= 500, f"answered {status}"
    # Raised outside, so that no error that holds the address is chained to it.
    raise NotTaken(reason, again=again)
