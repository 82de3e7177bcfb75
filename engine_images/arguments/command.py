"""A vLLM command line that somebody wrote, read back: the reverse of `command_line`. Pure.

Values of arguments that may hold a secret, load code or read files are not kept; their names are.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from pydantic import JsonValue

from engine_images.arguments.conflicts import argument_conflicts
from engine_images.arguments.validation import external_references, owner_of, wrong_arguments
from engine_images.arguments.values import KIND_OF, REPEATED, SEVERAL, ArgumentValue
from tidegate.core.errors import without_credentials
from tidegate.core.model import Value

_SHELLS = {"sh", "bash", "dash", "ash", "zsh"}
_MODULE = "vllm.entrypoints.openai.api_server"
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-q": "quantization",
    "-O": "optimization-level",
    "-sc": "speculative-config",
    "-cc": "compilation-config",
}
_VARIABLE = re.compile(r"\$[({A-Za-z_]")
_SECRET_KEY = re.compile(r"(^|[_-])(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)


class LeftArgument(Value):
    """An argument of a command line that a spec does not get, and why; never its value."""

    name: str
    why: str


class VllmCommand(Value):
    """What a container's command line says of vLLM."""

    recognized: bool
    """Whether it starts vLLM's OpenAI-compatible server."""
    model: str = ""
    """A folder, or a name of the hub's; empty when it does not say, or says it by a variable."""
    served_name: str = ""
    """The name that requests carry: the first of several; that of the model when empty."""
    revision: str = ""
    args: Mapping[str, ArgumentValue] = {}
    """As `engine.vllm.args` takes them."""
    left: tuple[LeftArgument, ...] = ()


def read_vllm_command(command: Sequence[str], args: Sequence[str], *, image: str) -> VllmCommand:
    """What a container is told to run.

    Args:
        command: of the container; empty for the image's own entrypoint.
        args: of the container.
        image: whose entrypoint it is; one with vllm in its name starts the server.
    """
    words = [*command, *args]
    behind = _behind_server(_unwrapped(words))
    if behind is None and not command and "vllm" in image:
        behind = list(args)
    if behind is None:
        return VllmCommand(recognized=False)
    given = dict(_options(behind))
    model = _plain(given.get("model") or given.get("model-tag"))
    kept, left = _sorted_out(given)
    served = given.get("served-model-name")
    return VllmCommand(
        recognized=True,
        model=model,
        served_name=_plain(served[0] if isinstance(served, list) and served else served),
        revision=_plain(given.get("revision")),
        args=kept,
        left=tuple(left),
    )


def _plain(value: JsonValue) -> str:
    """A text that is not a variable's; without a password of an address."""
    return without_credentials(value) if isinstance(value, str) and not _VARIABLE.search(value) else ""


def _unwrapped(words: Sequence[str]) -> list[str]:
    """The words of the one command in a shell's script that starts a server; the words as they are without a shell."""
    if not words or PurePosixPath(words[0]).name not in _SHELLS:
        return list(words)
    scripts = [
        words[place + 1]
        for place, word in enumerate(words[:-1])
        if place and re.fullmatch(r"-[a-z]*c", word)
    ]  # fmt: skip
    for command in _commands(scripts[0]) if scripts else ():
        if _behind_server(command) is not None:
            return command
    return list(words)


def _commands(script: str) -> Iterator[list[str]]:
    joined = re.sub(r"\\\s*\n", " ", script).replace("\n", " ; ")
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set(";&|"):
                yield command
                command = []
            else:
                command.append(word)
    except ValueError:
        # A quote that does not end: what stands behind it is not told apart.
        command = []
    yield command


def _behind_server(words: Sequence[str]) -> list[str] | None:
    """The words behind the server's name; None when no server is started."""
    for place, word in enumerate(words):
        if word == "serve" and place and PurePosixPath(words[place - 1]).name in {"vllm", "vllm.entrypoints.cli.main"}:
            return list(words[place + 1 :])
        if word == _MODULE or word.endswith("vllm/entrypoints/openai/api_server.py"):
            return list(words[place + 1 :])
    return None


def _options(words: Sequence[str]) -> Iterator[tuple[str, JsonValue]]:
    """Each option with its value; the model that stands alone by the name of its option."""
    rest = list(words)
    if rest and not rest[0].startswith("-"):
        yield "model", rest.pop(0)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "--":
            # Behind a flag nothing else stands alone.
            yield "model-tag", word
            continue
        name, said, inline = word.partition("=")
        short = name.removeprefix("-O") if re.fullmatch(r"-O\d", name) else ""
        name = "optimization-level" if short else _SHORT.get(name, name.removeprefix("--").replace("_", "-"))
        values = [inline] if said else [short] if short else _values(name, rest)
        yield _read(name, values)


def _values(name: str, rest: list[str]) -> list[str]:
    """Take from the rest what belongs to an option."""
    if _FLAG.match(name) or KIND_OF.get(name) == "flag":
        return []
    taken: list[str] = []
    several = name in SEVERAL | REPEATED | {"served-model-name"}
    while rest and not _is_option(rest[0]) and (several or not taken):
        taken.append(rest.pop(0))
    return taken


_FLAG = re.compile(r"(no|enable|disable|enforce|trust|return|skip|fully|language)-")
"""How the names of flags begin, behind which a word is none of theirs."""


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-[\d.]+", word)


def _read(name: str, values: list[str]) -> tuple[str, JsonValue]:
    positive = name.removeprefix("no-")
    if not values:
        return (positive, False) if positive != name else (name, True)
    read = [_value(text) for text in values]
    return name, read[0] if len(read) == 1 else read


def _value(text: str) -> JsonValue:
    """As YAML has it, where vLLM gets the same text back."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"-?\d+", text) and str(int(text)) == text:
        return int(text)
    if re.fullmatch(r"-?\d*\.\d+", text):
        return float(text)
    return _parsed(text) if text[:1] in {"{", "["} else text


def _parsed(text: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(text)
    except ValueError:
        return text
    return found


def _sorted_out(given: dict[str, JsonValue]) -> tuple[dict[str, ArgumentValue], list[LeftArgument]]:
    kept: dict[str, ArgumentValue] = {}
    left = []
    for name, value in given.items():
        why = "" if name in _READ else _why_left(name, value)
        if why:
            left.append(LeftArgument(name=name, why=why))
        elif name not in _READ:
            kept[name] = value
    for odd in argument_conflicts(kept):
        if odd.name in kept:
            del kept[odd.name]
            left.append(LeftArgument(name=odd.name, why=f"vLLM would refuse it here; expected {odd.expected}"))
    return kept, left


_READ = {"model", "model-tag", "served-model-name", "revision", "host", "port"}
"""Arguments whose place in a spec is another one."""


def _why_left(name: str, value: JsonValue) -> str:
    owner = owner_of(name)
    if owner:
        return f"it follows from the {owner}"
    if _holds_secret(value):
        return "its value may hold a secret"
    if _VARIABLE.search(json.dumps(value)):
        return "its value is a variable's, which was not read"
    wrong = next(iter(wrong_arguments({name: value})), None)
    if wrong:
        return f"expected {wrong.expected}"
    beyond = next(iter(external_references({name: value})), None)
    return "a spec may not set it by itself; trust.yaml may allow it (`spec.plugins`)" if beyond else ""


def _holds_secret(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(_SECRET_KEY.search(key) or _holds_secret(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(_holds_secret(inner) for inner in value)
    return isinstance(value, str) and without_credentials(value) != value
