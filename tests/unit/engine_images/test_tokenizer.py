from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_images.adapters.model_version import FileTokenizer
from engine_images.errors import NotAModel
from tidegate.testing import write_tiny_model

QUESTION = [{"role": "user", "content": "Hi <b>"}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path)


def configure(model: Path, **changes: object) -> None:
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_prompt_ends_where_the_assistant_begins(model: Path) -> None:
    assert FileTokenizer().render(model, QUESTION) == "<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_in_the_template_are_one_token_each(model: Path) -> None:
    tokens = FileTokenizer().encode(model, QUESTION)
    assert (tokens.count(1), tokens.count(2)) == (2, 1)


def test_a_model_without_a_template_is_no_model(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(NotAModel, match="has no chat template"):
        FileTokenizer().encode(model, QUESTION)


@pytest.mark.parametrize(
    ("template", "configured", "rendered"),
    [
        (None, {"chat_template": "{{ messages[0].content }}"}, "Hi <b>"),
        (None, {"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}]}, "y"),
        ("{{ bos_token }}{{ eos_token }}", {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}, "<s></s>"),
        # Not escaped for HTML.
        ("{{ messages[0].content | tojson }}", {}, '"Hi <b>"'),
    ],
)
def test_a_template_is_found_and_rendered_as_others_do(
    model: Path, template: str | None, configured: dict[str, object], rendered: str
) -> None:
    if template is None:
        (model / "chat_template.jinja").unlink()
    else:
        (model / "chat_template.jinja").write_text(template)
    configure(model, **configured)
    assert FileTokenizer().render(model, QUESTION) == rendered


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('no system prompt allowed') }}", "no system prompt allowed"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "access to attribute '__class__' .* is unsafe"),
        ("{{ 'x' * 9999999999 }}", "needs more than 1024 MB"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ],
)
def test_a_template_that_fails_or_reaches_into_python_is_refused(model: Path, template: str, reason: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(NotAModel, match=reason):
        FileTokenizer().encode(model, QUESTION)


def test_a_template_that_would_run_for_hours_is_ended_and_refused(model: Path) -> None:
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (model / "chat_template.jinja").write_text(loops)
    with pytest.raises(NotAModel, match="not done after 1 s of a processor"):
        FileTokenizer(cpu_seconds=1).render(model, QUESTION)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(NotAModel, match=rf"{name} is missing"):
        FileTokenizer().encode(model, QUESTION)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_named(model: Path, name: str) -> None:
    (model / name).write_text("{")
    with pytest.raises(NotAModel, match=name):
        FileTokenizer().encode(model, QUESTION)
