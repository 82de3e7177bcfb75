"""What variables of MLflow's own client say, what no log line of it holds, and who is asked for files."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from registry.mlflow import MlflowStore
from registry.mlflow_client import open_client
from registry.ports import limit_calls
from tidegate.core.errors import TidegateError, UsageError


@pytest.mark.parametrize("name", ["MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
@pytest.mark.parametrize("found", ["soon", "-1", "nan", "1.5", "9" * 5000])
def test_a_variable_that_holds_no_number_is_said_so(found: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, found)
    with pytest.raises(UsageError, match=f"{name}: expected a whole number of 0 or more; found") as caught:
        MlflowStore("http://127.0.0.1:1")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("said", "taken"), [(None, "2"), ("", "2"), ("30", "30")])
def test_the_environment_says_how_long_a_request_takes_before_a_spec(
    said: str | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    if said is not None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", said)
    limit_calls(1.5)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == taken


def test_no_log_line_of_mlflows_library_holds_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("sqlalchemy").addHandler(handler)
    try:
        open_client("http://127.0.0.1:1")
        open_client("http://127.0.0.1:1")
        logging.getLogger("sqlalchemy.pool").warning("cannot open %s", "postgresql://ci:hunter2@db/mlflow")
    finally:
        logging.getLogger("sqlalchemy").removeHandler(handler)
    assert capsys.readouterr().err == "cannot open postgresql://db/mlflow\n"


@pytest.mark.parametrize(
    "address", ["abfss://m@ours.dfs.core.windows.net/a", "abfs://m@example.com/a", "wasbs://m@ours.blob.example.com/a"]
)
def test_nobody_elses_host_gets_a_token(address: str) -> None:
    with pytest.raises(TidegateError, match=r"is not read|must be of the form"):
        MlflowStore("sqlite:///none.db").listed(address)
