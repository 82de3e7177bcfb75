"""A real cluster keeps the contract that the fake is built by."""

from __future__ import annotations

import pytest
from fakes.kube.contract import RolloutContract, ServerContract, note, scene, service

__all__ = ["note", "scene", "service"]


class TestServer(ServerContract): ...


@pytest.mark.usefixtures("rollouts_kinds")
class TestRollouts(RolloutContract): ...
