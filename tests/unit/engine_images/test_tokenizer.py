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


def test_the_template_may_be_in_the_configuration_of_the_tokenizer(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    configure(model, chat_template="{{ messages[0].content }}")
    assert FileTokenizer().render(model, QUESTION) == "Hi <b>"


def test_of_several_named_templates_the_default_is_used(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    configure(model, chat_template=[{"name": "rag", "template": "x"}, {"name": "default", "template": "y"}])
    assert FileTokenizer().render(model, QUESTION) == "y"


def test_the_template_knows_the_special_tokens(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}")
    configure(model, bos_token={"content": "<s>"}, eos_token="</s>")
    assert FileTokenizer().render(model, QUESTION) == "<s></s>"


def test_json_in_a_template_is_not_escaped_for_html(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ messages[0].content | tojson }}")
    assert FileTokenizer().render(model, QUESTION) == '"Hi <b>"'


def test_a_template_that_refuses_the_messages_says_why(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ raise_exception('no system prompt allowed') }}")
    with pytest.raises(NotAModel, match="no system prompt allowed"):
        FileTokenizer().encode(model, QUESTION)


def test_a_template_cannot_reach_into_python(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(NotAModel):
        FileTokenizer().encode(model, QUESTION)


def test_a_model_without_a_template_is_no_model(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(NotAModel, match="has no chat template"):
        FileTokenizer().encode(model, QUESTION)


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


def test_a_template_that_would_run_for_hours_is_ended_and_refused(model: Path) -> None:
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (model / "chat_template.jinja").write_text(loops)
    with pytest.raises(NotAModel, match="not done after 1 s of a processor"):
        FileTokenizer(cpu_seconds=1).render(model, QUESTION)


def test_a_template_that_would_take_all_memory_is_ended_and_refused(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ 'x' * 9999999999 }}")
    with pytest.raises(NotAModel, match="needs more than 1024 MB"):
        FileTokenizer().render(model, QUESTION)


def test_a_template_that_python_cannot_compute_is_refused_as_one_that_jinja_refuses(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ 1 / 0 }}")
    with pytest.raises(NotAModel, match="ZeroDivisionError"):
        FileTokenizer().render(model, QUESTION)
