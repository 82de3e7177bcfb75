"""The addresses of `serve`, from its options."""

from __future__ import annotations

from pipelines.adapters.web_server import ListenOptions


def test_the_way_that_mlflow_takes_is_one_of_its_names() -> None:
    assert ListenOptions("127.0.0.1:0", hosts=["a.example"]).names("https://b.example/webhooks/mlflow") == {
        "a.example",
        "b.example",
    }
