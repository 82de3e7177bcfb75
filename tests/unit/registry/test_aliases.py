"""Where aliases point after a promotion and a rollback, whatever they were before and whatever dies in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from fakes.delivery.store import MemoryStore
from hypothesis import given
from hypothesis import strategies as st

from registry.conventions import DIGEST, alias_problem, name_and_reference, refuse_name
from registry.errors import StoreUnreachable, UnknownAlias
from registry.model import SERVING, Serving, ServingAliases, StoredVersion
from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError

NUMBERS = [str(number) for number in range(1, 6)]
number = st.sampled_from(NUMBERS)
books = st.dictionaries(st.sampled_from(["champion", "previous", "challenger"]), number)


class Book(MemoryStore):
    """A model of which five versions may be served, with these aliases; it dies after so many moves of them."""

    def __init__(
        self, aliases: Mapping[str, str], *, replaced: Mapping[str, str] = {}, served: Iterable[str] = NUMBERS
    ):
        super().__init__()
        for version in NUMBERS:
            tags = {DIGEST: "d" * 64} if version in served else {}
            tags |= Serving(replaced=replaced[version]).tag if version in replaced else {}
            self.add_version("m", self.begin_files("e", "m", "k").source, tags=tags)
        self._aliases["m"] = dict(aliases)
        self.moves, self.left = 0, 99

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        if self.moves == self.left:
            raise StoreUnreachable("it died")
        self.moves += 1
        super().set_alias(name, alias, version)

    def move(self, rule: str, version: str, names: ServingAliases = SERVING) -> dict[str, str]:
        """Where aliases point once the registry has promoted or reinstated the version."""
        registry = MlflowRegistry(self)
        getattr(registry, rule)(registry.look_up("m", version), names)
        return dict(self.aliases("m") or {})


MOVES: dict[str, tuple[Book, str, str, dict[str, str]]] = {
    "the champion becomes previous, the challenger champion": (
        Book({"champion": "2", "previous": "1", "challenger": "3"}), "promote", "3", {"champion": "3", "previous": "2"}
    ),
    "the first champion has no previous": (Book({"challenger": "1"}), "promote", "1", {"champion": "1"}),
    "after a rollback previous is the one before": (
        Book({"champion": "3", "previous": "2"}, replaced={"2": "1"}), "reinstate", "2",
        {"champion": "2", "previous": "1"},
    ),
    "the one before is unknown": (Book({"champion": "3", "previous": "2"}), "reinstate", "2", {"champion": "2"}),
    "the one before is gone": (
        Book({"champion": "3", "previous": "2"}, replaced={"2": "1"}, served=["2", "3"]), "reinstate", "2",
        {"champion": "2"},
    ),
    "a champion that stays keeps the previous that somebody gave it": (
        Book({"champion": "3", "previous": "1"}), "reinstate", "3", {"champion": "3", "previous": "1"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES)
def test_where_aliases_point_afterwards(case: str) -> None:
    book, rule, version, told = MOVES[case]
    assert book.move(rule, version) == told


@given(aliases=books, version=number, replaced=st.just("") | number, rule=st.sampled_from(["promote", "reinstate"]))
def test_previous_is_never_the_champion_at_any_point_and_saying_it_again_changes_nothing(
    aliases: dict[str, str], version: str, replaced: str, rule: str
) -> None:
    noted = {version: replaced} if replaced else {}
    whole = Book(aliases, replaced=noted)
    ended = whole.move(rule, version)
    assert ended["champion"] == version
    assert ended.get("previous") != version
    moves = whole.moves
    assert whole.move(rule, version) == ended
    for done in range(moves):
        book = Book(aliases, replaced=noted)
        book.left = done
        with pytest.raises(StoreUnreachable):
            book.move(rule, version)
        between = book.aliases("m") or {}
        # What was wrong before is put right by the first move.
        assert done == 0 or "previous" not in between or between["previous"] != between["champion"]
        book.left = 99
        assert book.move(rule, version) == ended


def test_a_team_calls_what_serves_as_it_likes_and_other_aliases_stay() -> None:
    names = ServingAliases(champion="live", previous="live-before")
    aliases = {"live": "2", "live-before": "1", "candidate": "3", "champion": "1", "previous": "4"}
    book = Book(aliases, replaced={"2": "1"})
    assert book.move("promote", "3", names) == aliases | {"live": "3", "live-before": "2"}
    assert book.move("reinstate", "2", names) == aliases


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
    registry = MlflowRegistry(MemoryStore())
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
    [("99999999999999999999", UsageError), ("9" * 6000, UsageError), ("1\u0661", UnknownAlias)],
)
def test_a_number_that_no_version_has_is_said_so(reference: str, error: type[UsageError]) -> None:
    class Database(MemoryStore):
        def version(self, name: str, version: str) -> StoredVersion | None:
            int(version).to_bytes(4, signed=True)
            return super().version(name, version)

    store = Database()
    store.add_version("m", store.begin_files("e", "m", "k").source, tags={})
    with pytest.raises(error):
        MlflowRegistry(store).resolve("m", reference)
