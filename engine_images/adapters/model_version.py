"""A model version's folder on this disk: its configuration, its tokenizer and chat template.

A chat template comes with the model, so it is rendered in a process of its own (`chat_template`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from pydantic import TypeAdapter
from tokenizers import Tokenizer

from engine_images.adapters import chat_template
from engine_images.adapters.chat_template import Work
from engine_images.checks.files import TEMPLATE_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VersionFiles
from engine_images.errors import NotAModel
from engine_images.memory import Tensor
from tidegate.core.text import json_of

CPU_SECONDS = 5
"""For one conversation; a template of a real model takes milliseconds."""
MEMORY_BYTES = 1 << 30
"""Addresses, of which Python and Jinja take a fifth."""
DEADLINE_SECONDS = 60.0
"""A machine that gives a process 5 s of a processor in no minute delivers nothing else either."""


AGAIN = "register the version again from a whole Hugging Face folder"


class FileTokenizer:
    """Renders and tokenizes conversations with the files of a Hugging Face directory."""

    def __init__(self, cpu_seconds: int = CPU_SECONDS) -> None:
        """A template may take so long of a processor; however slow the machine is otherwise."""
        self._cpu_seconds = cpu_seconds

    def encode(self, folder: Path, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of `messages` followed by the opening of the assistant's answer.

        Raises:
            NotAModel: a file is missing or damaged, or the chat template refuses the messages.
        """
        prompt = self.render(folder, messages)
        content = _read(folder / TOKENIZER_FILE)
        try:
            tokenizer = Tokenizer.from_str(content)
        except Exception as error:  # `tokenizers` has no error of its own.
            raise NotAModel(f"{folder / TOKENIZER_FILE} is not a tokenizer: {error}", hint=AGAIN) from error
        # The template has written the special tokens already.
        return list(tokenizer.encode(prompt, add_special_tokens=False).ids)

    def render(self, folder: Path, messages: Sequence[Mapping[str, str]]) -> str:
        """The text that the chat template makes of `messages`.

        Raises:
            NotAModel: there is no chat template, or it refuses the messages, or takes too long or too much for them.
        """
        config = _read_json(folder / TOKENIZER_CONFIG_FILE)
        template = _chat_template(folder, config)
        work = Work(
            template=template,
            messages=messages,
            tokens=_special_tokens(config),
            cpu_seconds=self._cpu_seconds,
            memory_bytes=MEMORY_BYTES,
        )
        try:
            return _rendered(work)
        except TemplateError as error:
            raise NotAModel(
                f"the chat template of {folder} fails: {error}",
                hint="register the version again with a template that renders",
            ) from error


def _rendered(work: Work) -> str:
    """What the process that renders says.

    Raises:
        TemplateError: the template fails, or takes more than it may.
    """
    command = [sys.executable, "-P", "-m", chat_template.__name__]
    # Nothing of our own environment: it may hold secrets, and a template needs none of it.
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(work),
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateError(f"it is not done after {DEADLINE_SECONDS:g} s") from None
    if done.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
        raise TemplateError(f"it is not done after {work['cpu_seconds']} s of a processor")
    if done.returncode:
        raise TemplateError(f"it ends what renders it: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    answer: dict[str, str] = json.loads(done.stdout)
    if "error" in answer:
        raise TemplateError(answer["error"])
    return answer["text"]


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str:
    """The template in its own file, or in the tokenizer's configuration as one text or as named ones."""
    file = folder / TEMPLATE_FILE
    if file.exists():
        return _read(file)
    found = config.get("chat_template")
    if isinstance(found, list):
        found = next((entry["template"] for entry in found if entry["name"] == "default"), None)
    if not isinstance(found, str):
        raise NotAModel(f"{folder} has no chat template", hint=f"register the model with its {TEMPLATE_FILE}")
    return found


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and its like, which are texts or objects that hold the text."""
    tokens = {name: value for name, value in config.items() if name.endswith("_token")}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json_of(_read(path))
    except ValueError as error:
        raise NotAModel(f"{path} is not JSON: {error}", hint=AGAIN) from error
    if not isinstance(content, dict):
        raise NotAModel(f"{path} is not a JSON object", hint=AGAIN)
    return content


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotAModel(f"{path} is missing", hint="register the whole Hugging Face directory") from error


PICKLED = re.compile(r".*\.(bin|pt|pth|pkl|pickle|ckpt|joblib)")
"""Names under which pickled objects travel."""
PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
"""How every pickle since protocol 2 begins."""

PROBE = [{"role": "user", "content": "Hello"}]
"""The shortest conversation: a chat template that refuses it refuses everybody's."""


def read_version(folder: Path) -> VersionFiles:
    """Everything about the Hugging Face directory `folder` that the checks ask for."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    damaged: dict[str, str] = {}
    return VersionFiles(
        sizes={name: path.stat().st_size for name, path in paths.items()},
        documents=dict(_documents(paths, damaged)),
        pickles=tuple(name for name, path in paths.items() if PICKLED.fullmatch(name) or _is_pickle(path)),
        tensors=dict(_weights(paths, damaged)),
        largest_token=_tokenizer(folder, paths, damaged),
        damaged=damaged,
    )


def _documents(paths: dict[str, Path], damaged: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, path in paths.items():
        # The tokenizer's own file is megabytes long and read by its library.
        if not name.endswith(".json") or path.name == TOKENIZER_FILE:
            continue
        try:
            content = json_of(path.read_text(encoding="utf-8"))
        except ValueError as error:
            damaged[name] = f"no JSON: {error}"
            continue
        if isinstance(content, dict):
            yield name, content


def _weights(paths: dict[str, Path], damaged: dict[str, str]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    for name, path in paths.items():
        if path.suffix != ".safetensors":
            continue
        try:
            tensors, size = _read_header(path)
        except ValueError as error:
            damaged[name] = f"not a safetensors file: {error}; {AGAIN}"
            continue
        if path.stat().st_size != size:
            damaged[name] = f"{path.stat().st_size} bytes, where its header promises {size}"
        yield name, tensors


HEADER_LIMIT_BYTES = 100_000_000
"""The format's own limit; a larger number means that the file is something else."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Entry:
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]
    """Where its bytes begin and end, counted from the end of the header."""


_HEADER = TypeAdapter(dict[str, _Entry | dict[str, str]])
"""By tensor; `__metadata__` is the one entry that is none."""


def _read_header(file: Path) -> tuple[tuple[Tensor, ...], int]:
    """The tensors of one file by its header, and the size that the header promises of the file.

    The header is a JSON object behind its length as eight bytes.

    Raises:
        ValueError: the file is something else, or cut short within the header.
    """
    length = 0
    try:
        with file.open("rb") as stream:
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            header = _HEADER.validate_json(stream.read(length) if length <= HEADER_LIMIT_BYTES else b"")
    except (struct.error, ValueError) as error:
        unread = f"would be {length} bytes" if length > HEADER_LIMIT_BYTES else "cannot be read"
        raise ValueError(f"its header {unread}") from error
    entries = {name: entry for name, entry in header.items() if isinstance(entry, _Entry)}
    data = max((entry.data_offsets[1] for entry in entries.values()), default=0)
    tensors = tuple(Tensor(name, entry.dtype, entry.shape) for name, entry in entries.items())
    return tensors, _LENGTH.size + length + data


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(4)
    if PICKLE_START.match(start):
        return True
    if not start.startswith(b"PK"):
        return False
    # torch.save writes a ZIP file with the pickle inside.
    try:
        with zipfile.ZipFile(path) as archive:
            return any(PICKLED.fullmatch(name) for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _tokenizer(folder: Path, paths: dict[str, Path], damaged: dict[str, str]) -> int | None:
    """Try the tokenizer and the chat template on a conversation, as the gates will."""
    if TOKENIZER_FILE not in paths:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(paths[TOKENIZER_FILE]))
    except Exception as error:  # noqa: BLE001 (`tokenizers` has no error of its own)
        damaged[TOKENIZER_FILE] = f"no tokenizer: {error}"
        return None
    try:
        FileTokenizer().render(folder, PROBE)
    except NotAModel as error:
        # Without a cause something is missing or no JSON, which is told by its own name.
        if isinstance(error.__cause__, TemplateError):
            damaged[TEMPLATE_FILE] = f"a template that fails: {error.__cause__}"
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=None)
