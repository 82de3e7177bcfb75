"""Where `champion`, `previous` and `challenger` point next. Pure.

One rule for all who move them: `previous` is the version that the champion took over from, as long as that is
known and still registered. It is never the champion itself; where nothing is known, there is no `previous`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from registry.model import Alias
from tidegate.core.errors import UsageError

Move = tuple[str, str | None]
"""An alias and the number of the version it points at from now on; None takes the alias away."""


def promoted(version: str, aliases: Mapping[str, str], replaced: str | None, registered: Collection[str]) -> list[Move]:
    """What to write, in this order, when `version` becomes champion and the champion previous.

    `replaced` is what is noted on the version: the champion that it took over from, which is written before any
    of this. So it may be said again after a crash at any point; the challenger goes last, because it is what
    says that work is left.
    """
    moves = list(_succeed(version, aliases, replaced, registered))
    if aliases.get(Alias.CHALLENGER) == version:
        moves.append((Alias.CHALLENGER, None))
    return moves


def taken_over_from(version: str, aliases: Mapping[str, str], replaced: str | None) -> str | None:
    """The champion that `version` takes over from when it is promoted now; once it is champion itself, as noted."""
    champion = aliases.get(Alias.CHAMPION)
    return replaced if champion in (None, version) else champion


def reinstated(
    version: str, aliases: Mapping[str, str], replaced: str | None, registered: Collection[str]
) -> list[Move]:
    """What to write, in this order, when users went back to `version`. `replaced` as for `promoted`."""
    return list(_succeed(version, aliases, replaced, registered))


def pointed(alias: str, version: str, aliases: Mapping[str, str]) -> list[Move]:
    """What to write, in this order, when a person lets `alias` point at `version`.

    Raises:
        UsageError: the champion would be its own `previous`.
    """
    if alias == Alias.PREVIOUS and aliases.get(Alias.CHAMPION) == version:
        raise UsageError(
            f"version {version} is the champion, and cannot be the version before it too",
            hint="`previous` is what `tidegate rollback --to previous` goes back to",
        )
    taken = [(Alias.PREVIOUS, None)] if alias == Alias.CHAMPION and aliases.get(Alias.PREVIOUS) == version else []
    return [*taken, (alias, version)]


def _succeed(
    version: str, aliases: Mapping[str, str], replaced: str | None, registered: Collection[str]
) -> Iterator[Move]:
    champion, previous = aliases.get(Alias.CHAMPION), aliases.get(Alias.PREVIOUS)
    # Of one that stays champion nothing may be noted, as when somebody set the aliases by hand.
    known = (replaced, previous if champion == version else None)
    wanted = next((each for each in known if each in registered and each != version), None)
    # A `previous` of before must not be where a rollback goes to when this dies in the middle.
    if previous not in (None, wanted):
        yield Alias.PREVIOUS, None
    if champion != version:
        yield Alias.CHAMPION, version
    if wanted not in (None, previous):
        yield Alias.PREVIOUS, wanted
