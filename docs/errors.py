"""Writes `reference/errors.md`: every message of an error that a command may end with, as the code has it.

Names of classes are unique in the house, so that a name in a `raise` says which error it is.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_images.oci.toolchain import PACKAGES
from tidegate.core.errors import ExitCode

ROOT = Path(__file__).parents[1]
DOUBLES = ROOT / "tidegate/testing"
"""What stands there fails on purpose."""
BASE = "TidegateError"
MEANING = {
    ExitCode.USAGE: "Wrong usage or spec, or refused for now: whatever runs goes on as before.",
    ExitCode.OUTSIDE: "Registry, Prometheus, proxy, engine, disk: something outside was not there, or failed.",
    ExitCode.NOT_GENUINE: "A record of the delivery is not what was written; whatever stands on it was not done.",
    ExitCode.INTERRUPTED: "Asked to stop, by Ctrl-C or SIGTERM; what was delivered is rolled back.",
}


@dataclass(frozen=True, order=True)
class Message:
    """One message, with words in `<>` for what only the moment knows."""

    text: str
    hint: str
    error: str
    package: str


@dataclass(frozen=True)
class ErrorClass:
    """What a class of errors says of itself."""

    bases: tuple[str, ...]
    code: ExitCode | None
    """None when it is that of its base."""


def page() -> str:
    """The whole file."""
    trees = dict(_trees())
    classes = {name: found for tree in trees.values() for name, found in _classes(tree)}
    found: dict[ExitCode, set[Message]] = defaultdict(set)
    for path, tree in trees.items():
        for name, call in _made(tree, classes):
            text, hint = _texts(call)
            # What is put together elsewhere stands there.
            if len(_words(text)) > 1:
                package = path.relative_to(ROOT).parts[0]
                found[_code(name, classes)].add(Message(text, hint if _words(hint) else "", name, package))
    return "\n".join([*HEAD, *(line for code in sorted(found) for line in _section(code, found[code]))])


HEAD = (
    "# Error messages",
    "",
    "*For everyone who met one, or who writes a program that reads exit codes.* `make gen` writes this page from the"
    " code. Words in `<>` are those of the moment. Problems of a file have a form of their own,"
    " `FILE:LINE: field: found ...; expected ...` (exit code 2), and are not listed.",
    "",
)


def _section(code: ExitCode, messages: set[Message]) -> Iterator[str]:
    yield from (f"## Exit code {code}", "", MEANING[code], "")
    yield from ("| message | what to do | error |", "|---|---|---|")
    for each in sorted(messages, key=lambda each: (_words(each.text), each)):
        yield f"| {_cell(each.text)} | {_cell(each.hint)} | `{each.package}`: `{each.error}` |"
    yield ""


def _words(text: str) -> list[str]:
    """The words that always stand there: people look for these."""
    return re.findall(r"[a-z]+", re.sub(r"<[^>]*>", " ", text).lower())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.is_relative_to(DOUBLES):
                continue
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def _classes(tree: ast.Module) -> Iterator[tuple[str, ErrorClass]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            codes = (_stated_code(line) for line in node.body)
            bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            yield node.name, ErrorClass(bases, next((code for code in codes if code), None))


def _stated_code(line: ast.stmt) -> ExitCode | None:
    match line:
        case ast.Assign(targets=[ast.Name(id="exit_code")], value=ast.Attribute(attr=name)):
            return ExitCode[name]
        case ast.AnnAssign(target=ast.Name(id="exit_code"), value=ast.Attribute(attr=name)):
            return ExitCode[name]
    return None


def _is_error(name: str, classes: Mapping[str, ErrorClass]) -> bool:
    return name == BASE or (name in classes and any(_is_error(base, classes) for base in classes[name].bases))


def _code(name: str, classes: Mapping[str, ErrorClass]) -> ExitCode:
    own = classes[name]
    return own.code or next(_code(base, classes) for base in own.bases if _is_error(base, classes))


def _made(tree: ast.Module, classes: Mapping[str, ErrorClass]) -> Iterator[tuple[str, ast.Call]]:
    """Every call that makes an error with a message of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, *_]) if _is_error(name, classes):
                yield name, node


def _texts(call: ast.Call) -> tuple[str, str]:
    hint = next((each.value for each in call.keywords if each.arg == "hint"), None)
    return _text(call.args[0]), _text(hint) if hint else ""


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=value):
            return str(value or "")
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(filter(None, (_text(body), _text(other))))
    return f"<{_name(node)}>"


def _name(node: ast.expr) -> str:
    """A word for a value: the last name in what computes it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower().replace("_", " ")
        case ast.Call(func=ast.Attribute(attr="join"), args=[inner]):
            return _name(inner)
        case ast.Call(func=ast.Name(id=function), args=[*_, inner]) if hasattr(builtins, function):
            return _name(inner)
        case (
            ast.Call(func=inner)
            | ast.FormattedValue(value=inner)
            | ast.Subscript(value=inner)
            | ast.BoolOp(values=[inner, *_])
            | ast.GeneratorExp(elt=inner)
            | ast.ListComp(elt=inner)
        ):
            return _name(inner)
    return "…"


if __name__ == "__main__":
    print(page(), end="")
