"""What is taken out of a sampled text before it is kept: mails, numbers, keys, names as far as forms of address tell.

Patterns are ours and bounded, and what an operator adds are words and no patterns: a text that somebody wrote on
purpose must not hold up the process that answers users. Names that stand anywhere else in a sentence are not found;
that takes a language model, and engines have none to spare.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

Rule = Callable[[str], str]
"""Takes a text, gives it without what it looks for."""

_SEPARATED = r"(?:[ .\-/]?\(?\d\)?)"
_PATTERNS: Mapping[str, str] = {
    "email": r"[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(?:\.[A-Za-z0-9\-]{1,63}){1,8}",
    "key": r"\b(?:sk|pk|rk|ghp|gho|github_pat|glpat|xox[abp]|AKIA|hf|eyJ)[A-Za-z0-9_\-.]{16,512}",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "card": rf"(?<![\w.])\d{_SEPARATED}{{11,17}}\d(?!\w)",
    "ip": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{1,4}(?![\w:])",
    "phone": rf"(?<![\w.])(?:\+\(?\d|\(?0){_SEPARATED}{{6,14}}(?!\w)",
    "number": r"(?<![\w.,])\d{6,64}(?![\w])",
    "name": (
        # What a name begins with comes first: few places of a text are worth a look at what stands before them.
        r"(?=[A-ZÀ-Þ])(?!(?:Mr|Mrs|Ms|Dr|Sir|Madam|Herr|Frau)\b)"
        r"(?:(?<=\bMr )|(?<=\bMr\. )|(?<=\bMrs )|(?<=\bMrs\. )|(?<=\bMs )|(?<=\bMs\. )|(?<=\bDr )|(?<=\bDr\. )"
        r"|(?<=\bHerr )|(?<=\bFrau )|(?<=\b[Mm]y name is )|(?<=\b[Ii]ch heiße )|(?<=\bDear )|(?<=\bRegards, ))"
        r"[A-ZÀ-Þ][\w'’\-]{1,40}(?: [A-ZÀ-Þ][\w'’\-]{1,40}){0,2}"
    ),
}
"""In the order in which they are looked for: a card's number is one before it is a number."""

KINDS = tuple(_PATTERNS)
"""What can be asked for."""
_CARD_DIGITS = range(13, 20)


def redaction(kinds: Iterable[str], words: Iterable[str] = ()) -> Rule:
    """What takes these kinds out of a text, and these words whatever their case; `[email]` stays in the place of one.

    Raises:
        KeyError: a kind that there is not.
    """
    wanted = set(kinds)
    if unknown := wanted - set(KINDS):
        raise KeyError(f"{min(unknown)}: nothing of that kind can be taken out; there are {', '.join(KINDS)}")
    rules = [_rule(kind, re.compile(pattern)) for kind, pattern in _PATTERNS.items() if kind in wanted]
    if listed := sorted(map(re.escape, words), key=len, reverse=True):
        found = re.compile("|".join(listed), re.IGNORECASE)
        rules.insert(0, lambda text: found.sub("[word]", text))

    def redact(text: str) -> str:
        for rule in rules:
            text = rule(text)
        return text

    return redact


def _rule(kind: str, pattern: re.Pattern[str]) -> Rule:
    place = f"[{kind}]"
    if kind == "card":
        return lambda text: pattern.sub(lambda found: place if _is_card(found[0]) else found[0], text)
    return lambda text: pattern.sub(place, text)


def _is_card(text: str) -> bool:
    """Whether the digits are as many as a card's and their check digit is right (ISO/IEC 7812-1, Luhn)."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) if at % 2 else digit for at, digit in enumerate(reversed(digits))]
    return len(digits) in _CARD_DIGITS and sum(doubled) % 10 == 0
