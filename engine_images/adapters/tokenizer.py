"""What the files of a model version say a conversation's tokens are, told without transformers.

Follows transformers' `apply_chat_template`, which vLLM uses: the same Jinja settings, the same names in the
template. The template comes with the model, so it runs in Jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engine_images.errors import NotAModel

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"


class FileTokenizer:
    """Renders and tokenizes conversations with the files of a Hugging Face directory."""

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
            NotAModel: there is no chat template, or it refuses the messages.
        """
        config = _read_json(folder / TOKENIZER_CONFIG_FILE)
        template = _chat_template(folder, config)
        try:
            return (
                _sandbox()
                .from_string(template)
                .render(
                    messages=messages, add_generation_prompt=True, tools=None, documents=None, **_special_tokens(config)
                )
            )
        except TemplateError as error:
            raise NotAModel(f"the chat template of {folder} fails: {error}") from error


def _sandbox() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    # Jinja's own `tojson` escapes HTML characters, which would become other tokens.
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


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
