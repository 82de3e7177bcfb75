"""Where aliases point after a promotion and a rollback, whatever they were before and whatever dies in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.conventions import alias_problem, name_and_reference, refuse_name
from registry.errors import UnknownAlias, UnknownVersion
from registry.model import SERVING, Move, ServingAliases, StoredVersion, promoted, reinstated, taken_over_from
from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError
from tidegate.testing import MemoryStore

NUMBERS = [str(number) for number in range(1, 6)]
number = st.sampled_from(NUMBERS)
books = st.dictionaries(st.sampled_from(["champion", "previous", "challenger"]), number)


def after(aliases: Mapping[str, str], moves: Iterable[Move]) -> dict[str, str]:
    book = dict(aliases)
    for alias, version in moves:
        if version is None:
            del book[alias]
        else:
            book[alias] = version
    return book


def promote(version: str, aliases: Mapping[str, str], replaced: str = "") -> dict[str, str]:
    noted = taken_over_from(version, aliases, replaced)
    return after(aliases, promoted(version, aliases, noted, NUMBERS, SERVING))


def test_the_champion_becomes_previous_and_the_challenger_champion() -> None:
    assert promote("3", {"champion": "2", "previous": "1", "challenger": "3"}) == {"champion": "3", "previous": "2"}


def test_the_first_champion_has_no_previous() -> None:
    assert promote("1", {"challenger": "1"}) == {"champion": "1"}


def test_after_a_rollback_previous_is_the_one_before() -> None:
    moves = reinstated("2", {"champion": "3", "previous": "2"}, "1", NUMBERS, SERVING)
    assert after({"champion": "3", "previous": "2"}, moves) == {"champion": "2", "previous": "1"}


@pytest.mark.parametrize(
    ("replaced", "registered"),
    [("", ["2", "3"]), ("1", ["2", "3"]), ("2", ["2", "3"])],
    ids=["unknown", "gone", "itself"],
)
def test_after_a_rollback_to_a_version_with_none_before_it_there_is_no_previous(
    replaced: str, registered: list[str]
) -> None:
    before = {"champion": "3", "previous": "2", "challenger": "4"}
    assert after(before, reinstated("2", before, replaced, registered, SERVING)) == {"champion": "2", "challenger": "4"}


def test_a_champion_that_stays_keeps_the_previous_that_somebody_gave_it() -> None:
    assert list(reinstated("3", {"champion": "3", "previous": "1"}, "", NUMBERS, SERVING)) == []


def test_a_previous_that_is_the_champion_goes() -> None:
    assert list(reinstated("1", {"champion": "1", "previous": "1"}, "", NUMBERS, SERVING)) == [("previous", None)]


@given(aliases=books, version=number, replaced=st.just("") | number, back=st.booleans())
def test_previous_is_never_the_champion_at_any_point_and_saying_it_again_changes_nothing(
    aliases: dict[str, str], version: str, replaced: str, back: bool
) -> None:
    rule = reinstated if back else promoted
    noted = replaced if back else taken_over_from(version, aliases, replaced)
    moves = list(rule(version, aliases, noted, NUMBERS, SERVING))
    ended = after(aliases, moves)
    assert ended["champion"] == version
    assert ended.get("previous") != version
    for done in range(len(moves) + 1):
        between = after(aliases, moves[:done])
        # What was wrong before is put right by the first move.
        assert done == 0 or "previous" not in between or between["previous"] != between["champion"]
        assert back or taken_over_from(version, between, noted) == noted
        assert after(between, rule(version, between, noted, NUMBERS, SERVING)) == ended


def test_a_team_calls_what_serves_as_it_likes_and_other_aliases_stay() -> None:
    names = ServingAliases(champion="live", previous="live-before")
    book = {"live": "2", "live-before": "1", "candidate": "3", "champion": "1", "previous": "4"}
    noted = taken_over_from("3", book, "", names)
    moved = after(book, promoted("3", book, noted, NUMBERS, names))
    assert moved == book | {"live": "3", "live-before": "2"}
    assert after(moved, reinstated("2", moved, "1", NUMBERS, names)) == book


@pytest.mark.parametrize("name", ["live", "Production", "eu_west-1", "früh"])
def test_what_mlflow_takes_for_an_alias(name: str) -> None:
    assert alias_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "a b", "models:/m/Production", "m@live", "v7", "V7", "latest", "Latest", "7", "x" * 256]
)
def test_what_mlflow_takes_for_none(name: str) -> None:
    assert alias_problem(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "it's",
        "acme/chat",
        "a:b",
        "a%b",
        'a"b',
        "a`b",
        "a\\b",
        "a\x1b[31mb",
        "a\nb",
        "a\udcff",
        "x" * 201,
    ],
)
def test_a_name_that_mlflow_takes_for_no_model_is_a_usage_error_before_it_is_asked(name: str, tmp_path: Path) -> None:
    registry = MlflowRegistry("http://127.0.0.1:1")
    for ask in (
        lambda: registry.register(name, tmp_path),
        lambda: registry.resolve(name, "1"),
        lambda: registry.versions(name),
        lambda: registry.set_alias(name, "champion", "1"),
    ):
        with pytest.raises(UsageError, match="is no name of a model") as caught:
            ask()
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a b", "模型", "a.b", "a#b", "a+b?", "a=b", "a@b", "models"])
def test_what_may_be_registered_can_be_named_in_an_address(name: str) -> None:
    refuse_name(name)
    assert name_and_reference(f"models:/{name}/7") == (name, "7")
    assert name_and_reference(f"models:/{name}@champion") == (name, "champion")


@pytest.mark.parametrize(
    ("reference", "error"),
    [("99999999999999999999", UnknownVersion), ("9" * 6000, UnknownVersion), ("1\u0661", UnknownAlias)],
)
def test_a_number_that_no_version_has_is_said_so(reference: str, error: type[UsageError]) -> None:
    class Database(MemoryStore):
        def version(self, name: str, version: str) -> StoredVersion | None:
            int(version).to_bytes(4, signed=True)
            return super().version(name, version)

    store = Database()
    store.add_version("m", store.begin_files("e", "m", "k", {}).source, tags={})
    with pytest.raises(error):
        MlflowRegistry(store).resolve("m", reference)
