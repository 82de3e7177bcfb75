"""Without a champion there is nothing to compare with; the refusal says what serves a first version."""

from __future__ import annotations

import pytest
from fakes.delivery.world import a_spec

from registry.errors import UnknownAlias
from tidegate.planning import adopt_versions, plan_for


class NoChampion:
    """The part of a registry that is asked first."""

    def resolve(self, name: str, reference: str) -> object:
        raise UnknownAlias(f"models:/{name}@{reference}: no version has this alias", hint="set it: COMMAND")

    def adopt(self, name: str, reference: str) -> object:
        return self.resolve(name, reference)


def test_what_comes_before_a_first_delivery_is_said() -> None:
    told = "@champion: no version has this alias; set it: COMMAND; `tidegate fleet up` starts a first version"
    with pytest.raises(UnknownAlias, match=told):
        plan_for(a_spec(), NoChampion())  # type: ignore[arg-type]  # no more is asked
    with pytest.raises(UnknownAlias, match=told):
        adopt_versions(a_spec(), NoChampion())  # type: ignore[arg-type]  # as above
