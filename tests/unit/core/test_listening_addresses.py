"""Where a person wants something served."""

from __future__ import annotations

import pytest

from tidegate.core.errors import UsageError
from tidegate.core.process import host_and_port


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        (":9464", ("", 9464)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["9464", "localhost", "localhost:http", "localhost:70000", "localhost:-1", ""])
def test_anything_else_is_told_with_an_example(address: str) -> None:
    with pytest.raises(UsageError, match="is no address to listen at") as caught:
        host_and_port(address)
    assert caught.value.hint == "such as 127.0.0.1:9464"
