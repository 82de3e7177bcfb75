"""What the files of a model version say a conversation's tokens are, told without transformers.

Follows transformers' `apply_chat_template`, which vLLM uses: the same Jinja settings, the same names in the
template. The template comes with the model, so it runs in Jinja's sandbox, in a process with limits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from engine_images.adapters import chat_template
from engine_images.adapters.chat_template import Work
from engine_images.errors import NotAModel

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

CPU_SECONDS = 5
"""For one conversation; a template of a real model takes milliseconds."""
MEMORY_BYTES = 1 << 30
"""Addresses, of which Python and Jinja take a fifth."""
DEADLINE_SECONDS = 60.0
"""A machine that gives a process 5 s of a processor in no minute delivers nothing else either."""


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
            raise NotAModel(f"{folder / TOKENIZER_FILE} is not a tokenizer: {error}") from error
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
            raise NotAModel(f"the chat template of {folder} fails: {error}") from error


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
        content = json.loads(_read(path))
    except ValueError as error:
        raise NotAModel(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise NotAModel(f"{path} is not a JSON object")
    return content


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotAModel(f"{path} is missing", hint="register the whole Hugging Face directory") from error
