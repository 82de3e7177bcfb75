"""The addresses of `serve`, from its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.adapters.web_server import ListenOptions, listening
from tidegate.core.errors import UsageError

TOKEN = "0123456789abcdef0123456789abcdef"


def test_an_application_for_others_needs_a_login(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"would be open to anyone who can reach it; give --token FILE"):
        listening(ListenOptions("0.0.0.0:0"), guarded=True).__enter__()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with listening(ListenOptions("0.0.0.0:0", token=tmp_path / "token"), guarded=True) as heard:
        assert heard.socket.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("token", ["short", "a" * 32])
def test_a_token_that_could_be_guessed_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    with pytest.raises(UsageError, match=r"--token .*characters; expected at least") as caught:
        _ = ListenOptions("127.0.0.1:0", token=tmp_path / "token").password
    assert token not in str(caught.value).replace(str(tmp_path), "")


def test_what_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        _ = ListenOptions("127.0.0.1:0", token=tmp_path / "nowhere").password
    with pytest.raises(UsageError, match="give both"):
        _ = ListenOptions("127.0.0.1:0", certificate=tmp_path / "c")


def test_the_way_that_mlflow_takes_is_one_of_its_names() -> None:
    assert ListenOptions("127.0.0.1:0", hosts=["a.example"]).names("https://b.example/webhooks/mlflow") == {
        "a.example",
        "b.example",
    }
