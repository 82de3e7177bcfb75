"""How a person writes addresses."""

from __future__ import annotations

import pytest

from tidegate.core.access import Url
from tidegate.core.model import SpecModel
from tidegate.core.spec import SpecError, parse_spec


class Place(SpecModel):
    url: Url


def test_a_name_or_password_before_the_host_is_refused_and_not_repeated() -> None:
    with pytest.raises(SpecError, match=r"place\.yaml:1: url: found 'https://host/x'; expected text that") as caught:
        parse_spec("url: https://ci:hunter2@host/x\n", Place, file="place.yaml")
    assert "hunter2" not in str(caught.value)


def test_an_address_with_an_at_in_its_path_is_one() -> None:
    assert parse_spec("url: https://host:9090/a@b\n", Place, file="place.yaml").url == "https://host:9090/a@b"
