"""Addresses at which clouds hand out credentials, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fakes.services.http import QuietHandler, answering

from tidegate.core.errors import OutsideError
from tidegate.core.metadata_servers import is_metadata_server, request_hook


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "169.254.170.2", "169.254.169.254.", "100.100.100.200", "fe80::1", "fe80::1%eth0"),
        *("2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "0xa9.254.0251.254"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254", "fd00:ec2::23"),
        *("metadata", "metadata.google.internal", "Metadata.Google.Internal."),
    ],
)
def test_a_metadata_server_is_known_in_every_notation(host: str) -> None:
    assert is_metadata_server(host)


@pytest.mark.parametrize("host", ["", "127.0.0.1", "::1", "10.0.0.1", "fd00::1", "judge.example", "1.2.3.4.5", "a b"])
def test_other_hosts_are_none(host: str) -> None:
    assert not is_metadata_server(host)


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    """An address by a name, and the paths that were asked for there."""
    asked: list[str] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.answer("", 302 if self.path == "/away" else 200, location="http://2852039166/latest")

    with answering(Handler) as address:
        yield f"http://localhost:{address.rpartition(':')[2]}", asked


def of_this_machine(host: str) -> bool:
    """As if credentials were handed out at 127.0.0.1, which `localhost` leads to."""
    return host == "127.0.0.1"


async def test_nothing_is_sent_where_a_name_leads_to_one(served: tuple[str, list[str]]) -> None:
    url, asked = served
    hook = request_hook(of_this_machine)
    async with httpx.AsyncClient(event_hooks={"request": [hook]}, trust_env=False) as client:
        with pytest.raises(OutsideError, match=r"^127\.0\.0\.1 is link-local, or hands out a cloud's credentials"):
            await client.get(url)
    assert asked == []


async def test_a_redirect_leads_to_none(served: tuple[str, list[str]]) -> None:
    url, asked = served
    hooks = {"request": [request_hook()]}
    async with httpx.AsyncClient(event_hooks=hooks, trust_env=False, follow_redirects=True) as client:
        assert (await client.get(f"{url}/here")).is_success
        with pytest.raises(OutsideError, match=r"^2852039166 is link-local"):
            await client.get(f"{url}/away")
    assert asked == ["/here", "/away"]
