"""Where a person wants something served."""

from __future__ import annotations

import pytest

from tidegate.core.errors import UsageError
from tidegate.core.process import host_and_port


def test_an_address_is_a_host_and_a_port() -> None:
    parts = {"127.0.0.1:0": ("127.0.0.1", 0), "[::1]:9464": ("::1", 9464), ":9464": ("", 9464)}
    assert {address: host_and_port(address) for address in parts} == parts


@pytest.mark.parametrize("address", ["9464", "localhost", "localhost:http", "localhost:70000", "localhost:-1", ""])
def test_anything_else_is_told_with_an_example(address: str) -> None:
    with pytest.raises(UsageError, match="is no address to listen at; such as"):
        host_and_port(address)
