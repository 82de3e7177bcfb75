"""MLflow's own server, with its own `basic-auth` app, over TLS: by the variables that MLflow documents, as commands do.

Nothing secret is ever said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fakes.services.mlflow_server import PASSWORD, guarded_mlflow_server
from fakes.services.sockets import Authority
from fakes.terminal import Said, Tidegate

from pipelines.triggers.reconciler import MlflowTriggers
from tidegate.core.errors import OutsideError
from tidegate.testing import write_tiny_model

pytestmark = [
    pytest.mark.slow(reason="an MLflow server of its own, by its own command"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, authority = tmp_path_factory.mktemp("certificates"), Authority()
    (folder / "ca.crt").write_bytes(authority.certificate)
    authority.pair("server").write(folder, "server")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[str]:
    tls = f"--ssl-keyfile {certificates}/server.key --ssl-certfile {certificates}/server.crt"
    folder, options = tmp_path_factory.mktemp("password"), ("--uvicorn-opts", tls)
    with guarded_mlflow_server(folder, options=options, scheme="https") as uri:
        yield uri.replace(f"admin:{PASSWORD}@", "")


@pytest.fixture
def told(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Said]]:
    """What every command of a test said: never anything secret, also when it is asked for details."""
    said: list[Said] = []
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".mlflow").mkdir(parents=True)
    yield said
    assert said
    assert [each for each in said if PASSWORD in each.out + each.err] == []


def by(monkeypatch: pytest.MonkeyPatch, uri: str, variables: Mapping[str, str]) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)


def test_a_name_and_a_password(
    server: str,
    certificates: Path,
    told: list[Said],
    *,
    tidegate: Tidegate,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by(monkeypatch, server, {"SERVER_CERT_PATH": f"{certificates}/ca.crt", "USERNAME": "admin", "PASSWORD": PASSWORD})
    folder = write_tiny_model(tmp_path / "source")
    told.append(tidegate("model", "add", name, str(folder), "--alias", "live"))
    told.append(tidegate("model", "list", name))
    told.append(tidegate("model", "download", f"models:/{name}@live", str(tmp_path / "engine")))
    assert told[1].out.startswith(f"models:/{name}/1 (live): ")
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    with_name = server.replace("https://", f"https://admin:{PASSWORD}@")
    told.append(tidegate("model", "list", name, "--tracking-uri", with_name))
    kept = f"[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = {PASSWORD}\n"
    (tmp_path / "home" / ".mlflow" / "credentials").write_text(kept)
    told.append(tidegate("model", "list", name))
    assert [each.code for each in told] == [0] * 5, told


def test_a_server_whose_authority_is_unknown_is_told_no_password(
    server: str, told: list[Said], *, tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    by(monkeypatch, server, {"USERNAME": "admin", "PASSWORD": PASSWORD})
    told.append(tidegate("model", "list", "m"))
    assert told[-1].code == 4
    assert f"MLflow store {server}: no answer ([SSL: CERTIFICATE_VERIFY_FAILED]" in told[-1].err
    assert "MLFLOW_TRACKING_SERVER_CERT_PATH" in told[-1].err
    assert "MLFLOW_TRACKING_CLIENT_CERT_PATH" in told[-1].err
    by(monkeypatch, server, {"INSECURE_TLS": "true"})
    told.append(tidegate("model", "list", "m"))
    assert (told[-1].code, "no such model" in told[-1].err) == (2, True)


def test_an_address_that_mlflow_refuses_is_told_with_the_settings_that_allow_it(
    server: str, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by(monkeypatch, server, {"SERVER_CERT_PATH": f"{certificates}/ca.crt", "USERNAME": "admin", "PASSWORD": PASSWORD})
    with pytest.raises(OutsideError) as error:
        MlflowTriggers(server).announce("tidegate-support-llm", "http://127.0.0.1:9/", "a secret of some length")
    assert error.value.message.startswith("MLflow refuses http://127.0.0.1:9/: Invalid webhook URL scheme: 'http'")
    assert "MLFLOW_WEBHOOK_ALLOWED_SCHEMES=https,http" in str(error.value)
