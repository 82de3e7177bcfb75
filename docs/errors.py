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
    constants = {name: text for tree in trees.values() for name, text in _constants(tree)}
    for path, tree in trees.items():
        for name, call, around in _made(tree, classes):
            text, hint = _texts(call, _Advice(constants | dict(_constants(tree)), tree, around))
            # What is put together elsewhere stands there.
            if len(_words(text)) > 1:
                package = path.relative_to(ROOT).parts[0]
                found[_code(name, classes)].add(
                    Message(text, hint or _AS_IT_SAYS * ("expected" in text), name, package)
                )
    return "\n".join([*HEAD, *(line for code in sorted(found) for line in _section(code, found[code]))])


_AS_IT_SAYS = "as the message says"

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
    for package in sorted(PACKAGES):
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


def _made(tree: ast.Module, classes: Mapping[str, ErrorClass]) -> Iterator[tuple[str, ast.Call, ast.AST]]:
    """Every call that makes an error with a message of its own, and the innermost function that it stands in."""
    innermost: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # Outer ones come first, and are overwritten.
            innermost.update(dict.fromkeys(ast.walk(node), node))
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, *_]) if _is_error(name, classes):
                yield name, node, innermost.get(node, tree)


def _texts(call: ast.Call, advice: _Advice) -> tuple[str, str]:
    hint = next((each.value for each in call.keywords if each.arg == "hint"), None)
    return _text(call.args[0]), advice.text(hint) if hint else ""


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for line in tree.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                yield name, _text(value)


@dataclass(frozen=True)
class _Advice:
    """Finds the words of a hint that is put together a little before the error, or by a function next to it."""

    constants: Mapping[str, str]
    tree: ast.Module
    around: ast.AST

    def text(self, hint: ast.expr) -> str:
        """All that it may be, with ` / ` between."""
        found = list(dict.fromkeys(self._of(hint)))
        return " / ".join(filter(_words, found)) or " / ".join(found) or _text(hint)

    def _of(self, hint: ast.expr) -> Iterator[str]:
        match hint:
            case ast.Name(id=name) if name in self.constants:
                yield self.constants[name]
            case ast.Name(id=name):
                for value in _assigned(self.around, name, hint.lineno):
                    yield from self._of(value)
            case ast.IfExp(body=body, orelse=other):
                yield from (*self._of(body), *self._of(other))
            case ast.BinOp(left=left, right=right):
                yield "".join((*self._of(left), *self._of(right)))
            case ast.Await(value=value):
                yield from self._of(value)
            case ast.BoolOp(values=values):
                yield from (text for value in values for text in self._of(value))
            case ast.Call(func=ast.Attribute(value=ast.Dict(values=values), attr="get"), args=[_, *default]):
                yield from (text for value in (*values, *default) for text in self._of(value))
            case ast.Call(func=ast.Name(id=name)):
                yield from (text for value in _returned(self.tree, name) for text in self._of(value))
            case _:
                yield _text(hint)


def _assigned(function: ast.AST, name: str, before: int) -> list[ast.expr]:
    """What was given to the name last, above that line."""
    found = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=given)], value=value) if given == name and node.lineno <= before:
                found[node.lineno] = value
    return [found[max(found)]] if found else []


def _returned(tree: ast.Module, function: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            yield from (line.value for line in ast.walk(node) if isinstance(line, ast.Return) and line.value)


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
