"""Who asks an MLflow server: by the same variables as MLflow's own client."""

import logging
import sys
import traceback
from pathlib import Path

import pytest

from registry.adapters.mlflow_address import access_to, asked_by_rest
from registry.adapters.mlflow_library import hide_names
from tidegate.core.errors import UsageError

URL = "https://mlflow.example.com/team"


def test_name_and_password_of_the_environment_go_first(tmp_path: Path) -> None:
    said = {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "s3cret"}
    access = access_to("https://bob:old@mlflow.example.com/team/", said, tmp_path)
    assert (access.url, access.basic) == (URL, ("ann", "s3cret"))


def test_then_those_of_mlflows_file(tmp_path: Path) -> None:
    (tmp_path / ".mlflow").mkdir()
    kept = "[mlflow]\nmlflow_tracking_username = bob\nmlflow_tracking_password = 100%sure\n"
    (tmp_path / ".mlflow/credentials").write_text(kept)
    assert access_to(URL, {}, tmp_path).basic == ("bob", "100%sure")


@pytest.mark.parametrize("kept", ["hunt3r2\n", "[mlflow\nhunt3r2", "[mlflow]\nhunt3r2\n", "[a]\n[a]\nhunt3r2"])
def test_a_file_of_another_shape_is_refused_and_not_quoted(kept: str, tmp_path: Path) -> None:
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow/credentials").write_text(kept)
    with pytest.raises(UsageError, match=r"^~/\.mlflow/credentials: found no INI file") as caught:
        access_to(URL, {}, tmp_path)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunt3r2" not in f"{caught.value} {caught.value.detail} {shown}"


def test_then_those_of_the_address(tmp_path: Path) -> None:
    assert access_to("http://bob:p%40ss@host:5000", {}, tmp_path).basic == ("bob", "p@ss")


def test_a_name_without_a_password_is_no_credential(tmp_path: Path) -> None:
    assert access_to(URL, {"MLFLOW_TRACKING_USERNAME": "ann"}, tmp_path).basic is None


def test_what_else_mlflows_client_reads(tmp_path: Path) -> None:
    said = {
        "MLFLOW_TRACKING_TOKEN": "t0ken",
        "MLFLOW_TRACKING_INSECURE_TLS": "true",
        "MLFLOW_TRACKING_SERVER_CERT_PATH": "/etc/ca.pem",
        "MLFLOW_TRACKING_CLIENT_CERT_PATH": "/etc/me.pem",
        "MLFLOW_WORKSPACE": "team",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "3",
    }
    access = access_to(URL, said, tmp_path)
    assert (access.token, access.insecure, access.workspace) == ("t0ken", True, "team")
    assert (access.server_certificates, access.client_certificate) == ("/etc/ca.pem", "/etc/me.pem")
    assert (access.timeout_seconds, access.retries, access.backoff_factor) == (30, 1, 3)


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    said = {"MLFLOW_TRACKING_PASSWORD": "s3cret", "MLFLOW_TRACKING_USERNAME": "a", "MLFLOW_TRACKING_TOKEN": "t0ken"}
    told = repr(access_to("https://bob:old@host", said, tmp_path))
    assert not {"s3cret", "t0ken", "old"} & set(told.replace("'", " ").split())


@pytest.mark.parametrize("found", ["soon", "-1", "nan"])
def test_a_variable_that_holds_no_number_is_said_so(found: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MLFLOW_HTTP_REQUEST_TIMEOUT: expected a number of 0 or more"):
        access_to(URL, {"MLFLOW_HTTP_REQUEST_TIMEOUT": found}, tmp_path)


@pytest.mark.parametrize(
    ("uri", "environment", "expected"),
    [
        ("http://mlflow:5000", {}, True),
        ("https://mlflow", {"MLFLOW_TRACKING_AWS_SIGV4": "false"}, True),
        ("https://mlflow", {"MLFLOW_TRACKING_AWS_SIGV4": "true"}, False),
        ("https://mlflow", {"MLFLOW_TRACKING_AUTH": "corporate-plugin"}, False),
        ("sqlite:////tmp/mlflow.db", {}, False),
        ("postgresql://db/mlflow", {}, False),
    ],
)
def test_servers_are_asked_by_rest_unless_only_mlflow_can_sign(
    uri: str, environment: dict[str, str], expected: bool
) -> None:
    assert asked_by_rest(uri, environment) is expected


def test_no_log_line_of_mlflows_library_holds_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("sqlalchemy").addHandler(handler)
    try:
        hide_names()
        hide_names()
        logging.getLogger("sqlalchemy.pool").warning("cannot open %s", "postgresql://ci:hunter2@db/mlflow")
    finally:
        logging.getLogger("sqlalchemy").removeHandler(handler)
    assert capsys.readouterr().err == "cannot open postgresql://db/mlflow\n"
