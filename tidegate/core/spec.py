"""Reads a YAML spec and reports every problem at once, each with its file, line and path.

A problem reads `delivery.yaml:14: stages[2].canary.weights[0]: found 140; expected at most 99`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from tidegate.core import model
from tidegate.core.errors import UsageError, without_credentials
from tidegate.core.files import Unreadable, read_text
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.text import failure_line, lines_of, one_line, shortened
from tidegate.core.units import FROM_FILE, format_duration
from tidegate.core.yaml_text import MOST_CHARACTERS, TooMuch, all_composed, content_of

Spec = TypeVar("Spec", bound=SpecModel)
_DELTA = re.compile(r"datetime\.timedelta\(([^)]*)\)")
EXPECTED_FILE = "a readable YAML file, such as `tidegate init` writes"
MOST_BYTES = 4 * MOST_CHARACTERS
"""Whatever is longer has too many characters, of at most four bytes each."""
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""Of a delivery, and so of its Kubernetes objects."""
PATTERNS = {NAME: "at most 63 lower-case letters, digits and dashes, with no dash at either end"}
"""In words."""
MOST_PROBLEMS = 20
"""Of a message; nobody reads a thousand."""
FIRST_BYTES = 1 << 20
BYTES_A_LINE = 16 * 1024
"""On average, in a file whose number of lines is bounded: a long prompt has 4,000 tokens."""
FEW = 3
"""Names that a person reads at a glance."""
SHORTEST_PART = 3
"""Characters of a part of a name by which the whole name is found: `h100` means nvidia-h100-80gb."""
QUOTED_CHARACTERS = 80
"""Of a value that is wrong: enough to find it by."""
_SHAPES = {type(None): "empty", list: "a list", dict: "a mapping", int: "a number", float: "a number"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file."""

    file: str
    line: int
    """From 1; 0 where there is no such file."""
    path: str
    """As `stages[2].canary.weights[0]`; empty for what is wrong with the file as a whole."""
    found: str
    expected: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = f"{self.path}: " if self.path else ""
        return one_line(f"{where}: {path}found {shortened(self.found)}; expected {self.expected}")


class SpecError(UsageError):
    """A spec cannot be used as it is."""

    has_places = True

    def __init__(self, problems: list[Problem]) -> None:
        """`problems` are those that were looked for, in the order of the file; the message has the first of them."""
        lines = [str(problem) for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            lines.append(f"{problems[MOST_PROBLEMS].file}:{problems[MOST_PROBLEMS].line}: and more problems")
        super().__init__("\n".join(lines))
        self.problems = problems


@dataclass(frozen=True)
class Document:
    """One document of a YAML text: what it says, and where."""

    file: str
    root: yaml.Node | None
    """None for an empty text."""
    said: object

    def read(self, kind: type[Spec], also: Callable[[Spec], Iterable[SpecConflict]] = lambda _: ()) -> Spec:
        """As a `kind`.

        Raises:
            SpecError: with every problem.
        """
        problems = list(self._duplicates(self.root, ""))
        try:
            spec = kind.model_validate(self.said, context={FROM_FILE: True})
        except ValidationError as error:
            # To explain one is to walk the file for it, and nobody reads thousands.
            for detail in islice(_causes(error.errors()), MOST_PROBLEMS + 1):
                loc, owner, inside = _place(detail["loc"], kind)
                problems.append(self.problem(loc, *_sentence(detail, loc, owner, inside)))
            raise SpecError(sorted(problems, key=lambda problem: problem.line)) from error
        odds = islice(chain(spec.all_contradictions(), also(spec)), MOST_PROBLEMS + 1)
        problems += [self.problem(odd.where, odd.found, odd.expected) for odd in odds]
        if problems:
            raise SpecError(problems)
        return spec

    def whole(self, found: str, expected: str) -> Problem:
        """What is wrong with all of it, where it begins."""
        return Problem(self.file, self.root.start_mark.line + 1 if self.root else 1, "", found, expected)

    def problem(self, where: Loc, found: str, expected: str) -> Problem:
        """What is wrong at `where`: its path as a person writes it, the line of its deepest node that is there."""
        path, node, line = "", self.root, 1
        for part in where:
            if part == "[key]":
                # So pydantic marks a mapping's key that is wrong itself; the part before it names the key.
                continue
            if isinstance(part, int):
                path += f"[{part}]"
                node = node.value[part] if isinstance(node, yaml.SequenceNode) and part < len(node.value) else None
                line = node.start_mark.line + 1 if node is not None else line
            else:
                path += f".{part}" if path else part
                pairs = node.value if isinstance(node, yaml.MappingNode) else ()
                key, node = next((pair for pair in pairs if pair[0].value == part), (None, None))
                line = key.start_mark.line + 1 if key is not None else line
        return Problem(self.file, line, path, found, expected)

    def _duplicates(self, node: yaml.Node | None, path: str) -> Iterator[Problem]:
        """YAML keeps the last of two equal keys in silence; a spec must not."""
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield from self._duplicates(item, f"{path}[{index}]")
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                here = f"{path}.{key.value}" if path else str(key.value)
                if key.value in seen:
                    yield Problem(self.file, key.start_mark.line + 1, here, "the key twice", "each key once")
                seen.add(key.value)
                yield from self._duplicates(value, here)


def load_spec(path: Path, kind: type[Spec], *, also: Callable[[Spec], Iterable[SpecConflict]] = lambda _: ()) -> Spec:
    """Read the YAML file at `path` as a `kind`; `also` says what is wrong with it beyond what it knows itself.

    Raises:
        SpecError: with every problem, when the file cannot be read, is not YAML, or is not a `kind`.
    """
    return parse_spec(text_in(path, EXPECTED_FILE, most_bytes=MOST_BYTES), kind, file=str(path), also=also)


def text_in(path: Path, expected: str, *, most_bytes: int | None = None) -> str:
    """The text of a file that a person names; no more than `most_bytes` of it is read.

    Raises:
        SpecError: it cannot be read, or is not UTF-8; `expected` says what it should be.
    """
    try:
        return read_text(path, most_bytes=most_bytes)
    except Unreadable as error:
        raise SpecError([unreadable(str(path), error, expected)]) from error


def bounded_lines(path: Path, expected: str, *, most: int | None) -> list[str]:
    """The lines of a file that a person names, when they are not more than `most`; None for any number.

    Raises:
        SpecError: as `text_in`, or when it has more; says how many it may have.
    """
    most_bytes = None if most is None else most * BYTES_A_LINE
    # A file that is too large is not read: it is told by its first lines.
    too_large = most_bytes is not None and path.is_file() and path.stat().st_size > most_bytes
    lines = lines_of(text_in(path, expected, most_bytes=FIRST_BYTES if too_large else most_bytes))
    if most is not None and (len(lines) > most or too_large):
        found = f"{path.stat().st_size >> 20:,} MiB" if too_large else f"{len(lines):,} lines"
        allowed = f"at most {most:,} lines and {most * BYTES_A_LINE >> 20:,} MiB"
        raise SpecError([Problem(str(path), min(len(lines), most + 1), "", found, f"{expected}, {allowed}")])
    return lines


def unreadable(file: str, error: Unreadable, expected: str) -> Problem:
    """What is wrong with a file that is no text."""
    if isinstance(error.__cause__, FileNotFoundError):
        return Problem(file, 0, "", "no such file", expected)
    # Anyone who has a file in another encoding needs the name of the right one.
    encoded = f"{expected} in UTF-8" if isinstance(error.__cause__, UnicodeDecodeError) else expected
    return Problem(file, error.line, "", str(error), encoded)


def parse_spec(
    text: str, kind: type[Spec], *, file: str, also: Callable[[Spec], Iterable[SpecConflict]] = lambda _: ()
) -> Spec:
    """As `load_spec`, for text at hand; `file` is the name used in problems."""
    documents = _documents(text, file) or [Document(file, None, None)]
    if len(documents) > 1:
        raise SpecError([documents[1].whole("another document", "one")])
    return documents[0].read(kind, also)


def stated_kind(path: Path) -> object:
    """What the file at `path` says under `kind`; None where it cannot be read: the one who reads it whole says why."""
    try:
        (document,) = _documents(read_text(path, most_bytes=MOST_BYTES), "")
    except (Unreadable, SpecError, ValueError):
        return None
    return document.said.get("kind") if isinstance(document.said, dict) else None


def parse_documents(
    text: str, kind_of: Callable[[object], type[Spec] | None], *, file: str, expected: str
) -> list[tuple[Document, Spec]]:
    """As `parse_spec`, for a text of documents of several kinds; empty ones are left out.

    `kind_of` recognizes what a document says; None when it cannot, and `expected` names what it knows.

    Raises:
        SpecError: with every problem of every document.
    """
    found: list[tuple[Document, Spec]] = []
    problems: list[Problem] = []
    for document in _documents(text, file):
        if document.said is None:
            continue
        kind = kind_of(document.said)
        if kind is None:
            problems.append(document.whole("a document of no known format", expected))
            continue
        try:
            found.append((document, document.read(kind)))
        except SpecError as error:
            problems += error.problems
    if problems or not found:
        raise SpecError(problems or [Problem(file, 1, "", "an empty file", expected)])
    return found


def _documents(text: str, file: str) -> list[Document]:
    """Those of a text. Behind a syntax error nothing can be told apart: the first is told."""
    try:
        return [Document(file, root, content_of(root)) for root in all_composed(text)]
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(file, error)
    except yaml.reader.ReaderError as error:
        problem = Problem(file, 1, "", error.reason, "valid YAML")
    except TooMuch as error:
        problem = Problem(file, 1, "", error.found, error.expected)
    # As of an integer of thousands of digits, or of what a tag says that it is and it is not.
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = Problem(file, 1, "", f"a value that is none ({failure_line(error)})", "valid YAML")
    raise SpecError([problem])


def _syntax_problem(file: str, error: yaml.MarkedYAMLError) -> Problem:
    """Some of PyYAML's sentences begin with `found`, others say what is not allowed."""
    why, mark = error.problem or "", error.problem_mark
    line, column = (mark.line + 1, f"at column {mark.column + 1}") if mark else (1, "")
    begins = why.startswith("found ")
    found = f"{why.removeprefix('found ')}, {column}" if begins else f"a syntax error {column}: {why}"
    return Problem(file, line, "", found, "valid YAML")


def _causes(details: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Without what only follows: a list is not too short because an item of it is wrong."""
    places = Counter(detail["loc"][:length] for detail in details for length in range(len(detail["loc"]) + 1))
    for detail in details:
        if detail["type"] != "too_short" or places[detail["loc"]] == 1:
            yield detail


def _place(loc: Loc, kind: type[BaseModel]) -> tuple[Loc, Any, Any]:
    """The keys of the file alone, the model that the last of them is in, and the model that stands there, or None.

    pydantic puts the tag of a union's member into a location; it is no key of the file.
    """
    keys: list[int | str] = []
    owner: Any = kind
    models: dict[str | int | None, Any] = {None: kind}
    own_key = False
    for part in loc:
        if part in models:
            models = {None: models[part]}
            continue
        keys.append(part)
        owner = models.get(None)
        # A key of a mapping is the person's own, and leads to the same model whatever it says.
        if isinstance(part, int) or own_key or not _is_model(owner):
            own_key = False
            continue
        known = {field.alias or name: field.annotation for name, field in owner.model_fields.items()}
        parts = list(_parts(known.get(part, getattr(owner, "of_other_names", None))))
        models = dict(reversed([(tag, each) for tag, each in parts if _is_model(each) or tag]))
        own_key = not any(models) and any(get_origin(each) is Mapping for _, each in parts)
    return tuple(keys), owner, models.get(None)


def _parts(annotation: Any) -> Iterator[tuple[str | None, Any]]:
    """What an annotation is made of, through lists, mappings and optionals; members of a union with their tags."""
    for tag in getattr(annotation, "__metadata__", ()):
        if isinstance(tag, Tag):
            yield tag.tag, annotation.__origin__
            return
    yield None, annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _parts(inner)


def _sentence(detail: ErrorDetails, loc: Loc, owner: Any, inside: Any) -> tuple[str, str]:
    """What was found and what would be right, in words that need no knowledge of pydantic."""
    context: dict[str, Any] = detail.get("ctx", {})
    found = _quoted(detail["input"], whole=not loc)
    match detail["type"]:
        case "extra_forbidden":
            found, expected = "an unknown key", _known_keys(loc, owner)
        case "union_tag_not_found":
            found, expected = "an unknown key", f"{_known_keys(loc, owner)}; or a name of your own, with a `kind`"
        case "union_tag_invalid":
            found, expected = f"kind {context['tag']}", _one_of(str(context["tag"]), str(context["expected_tags"]))
        case "missing":
            found, expected = "nothing", "a value here"
        case model.AT_ODDS:
            found, expected = str(context["found"]), str(context["expected"])
        case "value_error":
            expected = str(context["error"])
        case "enum" | "literal_error":
            expected = _one_of(str(detail["input"]), str(context["expected"]))
        case "list_type" | "tuple_type":
            expected = "a list"
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            example = getattr(inside, "example", "")
            expected = f"a mapping such as `{example}`" if loc and example else "a mapping"
        case "too_short":
            expected = f"at least {context['min_length']} of them"
        case "string_pattern_mismatch":
            expected = PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
        case _:
            said = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            expected = _DELTA.sub(_as_duration, said)
    return found, expected


def _quoted(found: object, *, whole: bool) -> str:
    """What stands there, short; nothing of a file that is no spec at all, which may be somebody's secret."""
    if whole:
        return f"a file that is {_SHAPES.get(type(found), 'text')}"
    text = format_duration(found) if isinstance(found, timedelta) else without_credentials(repr(found))
    return text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}..."


def _one_of(found: str, listed: str) -> str:
    """The names that may stand there, of many the nearest one first; `listed` is pydantic's list, in quotes."""
    known = re.findall(r"'([^']*)'", listed)
    within = [name for name in known if len(found) >= SHORTEST_PART and found.lower() in name.lower()]
    near = within or difflib.get_close_matches(found.lower(), known, n=1)
    return f"{near[0]} (the nearest known name), or another of {listed}" if near and len(known) > FEW else listed


def _as_duration(bound: re.Match[str]) -> str:
    """A bound as a spec writes it: pydantic has only the words of Python."""
    parts = {unit: int(count) for unit, count in re.findall(r"(\w+)=(\d+)", bound[1])}
    return format_duration(timedelta(**parts))


def _known_keys(loc: Loc, owner: Any) -> str:
    known = [field.alias or name for name, field in owner.model_fields.items()] if _is_model(owner) else []
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    if near:
        return f"{near[0]} (the nearest known key)"
    return "one of " + ", ".join(known) if known else "a known key"


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
