"""Where a person wants something served."""

from __future__ import annotations

from tidegate.core.process import host_and_port


def test_an_address_is_a_host_and_a_port() -> None:
    parts = {"127.0.0.1:0": ("127.0.0.1", 0), "[::1]:9464": ("::1", 9464), ":9464": ("", 9464)}
    assert {address: host_and_port(address) for address in parts} == parts
