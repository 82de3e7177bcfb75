"""Who asks a Prometheus, and whom it is believed to be: a real one behind passwords and TLS, and doors of others."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.services.guarded import guarded, signed_with
from fakes.services.prometheus import prometheus
from fakes.services.sockets import Authority

from rollouts.adapters.prometheus_query import PrometheusQuery
from tidegate.cli import main
from tidegate.core.access import CredentialMissing, PrometheusEndpoint
from tidegate.core.adapters.prometheus import (
    PrometheusClient,
    PrometheusDenied,
    PrometheusRefused,
    PrometheusUnreachable,
)

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")

PASSWORD = "correct-horse-battery"
HASHED = "$2b$04$btfXC.XYT.2hJEnJ/AQQR.ZDyCwHX7JiCXPBL57VM9SgQ8muxVxyu"
"""Of that password, by bcrypt."""
TOKEN = "eyJhbGciOi-S3cret-token"


def endpoint(url: str, **said: Any) -> PrometheusEndpoint:
    return PrometheusEndpoint.model_validate({"url": url, **said})


async def asked(at: PrometheusEndpoint) -> tuple[float, ...]:
    return await PrometheusQuery(at).ask("vector(2)")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "ca.crt").write_bytes(authority.certificate)
    authority.pair("server").write(folder, "server")
    authority.pair("tidegate").write(folder, "client")
    Authority().pair("somebody").write(folder, "somebody")
    return folder


@pytest.fixture(scope="module")
def with_password(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[str]:
    """Over TLS, for one who knows the password."""
    server = {"cert_file": str(folder / "server.crt"), "key_file": str(folder / "server.key")}
    web = {"tls_server_config": server, "basic_auth_users": {"tidegate": HASHED}}
    with prometheus(tmp_path_factory.mktemp("basic"), web=web) as url:
        yield url


@pytest.fixture(scope="module")
def with_certificate(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[str]:
    """For one who shows a certificate of our authority."""
    server = {
        "cert_file": str(folder / "server.crt"),
        "key_file": str(folder / "server.key"),
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(folder / "ca.crt"),
    }
    with prometheus(tmp_path_factory.mktemp("mutual"), web={"tls_server_config": server}) as url:
        yield url


BASIC = {"basic": {"username": "tidegate", "password": {"env": "TIDEGATE_SPEC_PASSWORD"}}}


def shown(folder: Path, name: str) -> dict[str, Any]:
    pair = {"certificate": {"file": str(folder / f"{name}.crt")}, "key": {"file": str(folder / f"{name}.key")}}
    return {"certificate": pair}


async def test_the_one_who_knows_the_password_is_answered(
    with_password: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_PASSWORD", PASSWORD)
    ca = {"file": str(folder / "ca.crt")}
    at = endpoint(with_password, ca=ca, auth=BASIC)
    assert await asked(at) == (2.0,)
    assert await PrometheusQuery(at).ask("4") == (4.0,)
    assert await PrometheusQuery(at).ask("litellm_requests_total") == ()
    with pytest.raises(PrometheusRefused) as refused:
        await PrometheusQuery(at).ask("sum(rate(")
    assert "parse error" in (refused.value.detail or "")
    monkeypatch.setenv("TIDEGATE_SPEC_PASSWORD", "another-one")
    with pytest.raises(PrometheusDenied, match=r"the name and password in the variable TIDEGATE_SPEC_PASSWORD"):
        await asked(endpoint(with_password, ca=ca, auth=BASIC))
    with pytest.raises(PrometheusDenied, match="refuses requests without credentials"):
        await asked(endpoint(with_password, ca=ca))
    monkeypatch.delenv("TIDEGATE_SPEC_PASSWORD")
    with pytest.raises(CredentialMissing, match="TIDEGATE_SPEC_PASSWORD, which holds a credential, is not set"):
        await asked(endpoint(with_password, ca=ca, auth=BASIC))


async def test_a_certificate_that_nobody_trusted_signed_ends_before_the_password_is_sent(
    with_password: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_PASSWORD", PASSWORD)
    with pytest.raises(PrometheusUnreachable, match="we trust the public authorities"):
        await asked(endpoint(with_password, auth=BASIC))
    other = tmp_path / "other.crt"
    other.write_bytes(Authority().certificate)
    with pytest.raises(PrometheusUnreachable, match=f"we trust those in the file {other}"):
        await asked(endpoint(with_password, ca={"file": str(other)}, auth=BASIC))
    other.write_text("no certificate")
    with pytest.raises(CredentialMissing, match="holds is no certificate in PEM"):
        await asked(endpoint(with_password, ca={"file": str(other)}, auth=BASIC))


async def test_the_one_who_shows_a_certificate_is_answered(with_certificate: str, folder: Path) -> None:
    ca = {"file": str(folder / "ca.crt")}
    assert await asked(endpoint(with_certificate, ca=ca, auth=shown(folder, "client"))) == (2.0,)
    with pytest.raises(PrometheusDenied, match="in the TLS handshake; it wants a client certificate"):
        await asked(endpoint(with_certificate, ca=ca))
    with pytest.raises(PrometheusDenied, match="the client certificate in the file"):
        await asked(endpoint(with_certificate, ca=ca, auth=shown(folder, "somebody")))


def test_certificates_that_are_rotated_are_shown_at_once(
    with_certificate: str, folder: Path, authority: Authority, tmp_path: Path
) -> None:
    Authority().pair("somebody").write(tmp_path, "client")
    at = endpoint(with_certificate, ca={"file": str(folder / "ca.crt")}, auth=shown(tmp_path, "client"))
    client = PrometheusClient(at, timeout_seconds=5)
    with pytest.raises(PrometheusDenied):
        client.query("1")
    authority.pair("tidegate").write(tmp_path, "client")
    assert client.query("1").kind == "scalar"


def test_a_token_that_is_rotated_is_sent_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with guarded(lambda _, __, headers: headers.get("authorization") == "Bearer second") as door:
        client = PrometheusClient(endpoint(door.address, auth={"bearer": {"file": str(file)}}), timeout_seconds=5)
        file.write_text("first\n")
        with pytest.raises(PrometheusDenied, match=rf"refuses the token in the file {file} \(401\)"):
            client.query("up")
        file.write_text("second\n")
        assert client.query("up").kind == "vector"


def test_a_tenant_is_told_with_every_query() -> None:
    with guarded(lambda _, __, headers: headers.get("x-scope-orgid") == "team-a") as door:
        assert PrometheusClient(endpoint(door.address, tenant="team-a"), timeout_seconds=5).query("up").series
        with pytest.raises(PrometheusDenied):
            PrometheusClient(endpoint(door.address), timeout_seconds=5).query("up")


AWS = {"region": "eu-west-1", "access_key": {"env": "TIDEGATE_SPEC_KEY"}, "secret_key": {"env": "TIDEGATE_SPEC_SECRET"}}
KEYS = ("AKIDEXAMPLE", "wJalrXUtnFEMI-S3cret")
AWKWARD = 'sum(rate({__name__=~"a|b",p="/v1/x y+z~"}[5m])) / 2'


def test_a_signature_of_aws_is_the_one_that_botocore_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_KEY", KEYS[0])
    monkeypatch.setenv("TIDEGATE_SPEC_SECRET", KEYS[1])
    with guarded(signed_with(*KEYS, region="eu-west-1")) as door:
        at = endpoint(f"{door.address}/workspaces/ws-1", tenant="team-a", auth={"sigv4": AWS})
        assert PrometheusClient(at, timeout_seconds=5).query(AWKWARD).series
        assert "x-scope-orgid" in door.heard[-1]["authorization"]
        monkeypatch.setenv("TIDEGATE_SPEC_SECRET", "another")
        with pytest.raises(PrometheusDenied, match="the AWS signature with keys in the variable TIDEGATE_SPEC_KEY and"):
            PrometheusClient(at, timeout_seconds=5).query("up")


def test_keys_of_aws_are_found_where_its_own_tools_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), (*KEYS, TOKEN), strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    with guarded(signed_with(*KEYS, region="eu-west-1", token=TOKEN)) as door:
        at = endpoint(door.address, auth={"sigv4": {"region": "eu-west-1"}})
        assert PrometheusClient(at, timeout_seconds=5).query("up").series


WAYS: dict[str, dict[str, Any]] = {
    "bearer": {"auth": {"bearer": {"env": "TIDEGATE_SPEC_SECRET"}}},
    "basic": {"auth": {"basic": {"username": "me", "password": {"env": "TIDEGATE_SPEC_SECRET"}}}},
    "tenant": {"tenant": "team-a"},
    "sigv4": {"auth": {"sigv4": {**AWS, "session_token": {"env": "TIDEGATE_SPEC_SECRET"}}}},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_says_who_asks_goes_to_no_other_place(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_KEY", KEYS[0])
    monkeypatch.setenv("TIDEGATE_SPEC_SECRET", TOKEN)
    with guarded(lambda *_: True) as elsewhere, guarded(lambda *_: True, moved_to=elsewhere.address) as door:
        with pytest.raises(PrometheusUnreachable, match=f"redirects to {elsewhere.address}; name the address"):
            PrometheusClient(endpoint(door.address, **WAYS[way]), timeout_seconds=5).query("up")
        assert (len(door.heard), elsewhere.heard) == (1, [])


GATES = """\
apiVersion: tidegate/v1
kind: Gates
gates: {latency: {metric: ttft}}
"""


@pytest.mark.parametrize("way", ["bearer", "basic", "sigv4"])
def test_no_output_has_the_secret_even_when_the_server_repeats_it(
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_SPEC_KEY", KEYS[0])
    monkeypatch.setenv("TIDEGATE_SPEC_SECRET", TOKEN)
    (tmp_path / "gates.yaml").write_text(GATES)
    with guarded(lambda *_: False) as door:
        (tmp_path / "access.yaml").write_text(json.dumps(WAYS[way]))
        place = ["--prometheus", door.address, "--prometheus-access", "access.yaml"]
        arms = ["--region", "eu", "--stable", "6", "--canary", "7", "--ci"]
        command = ["gate", "check", "gates.yaml", *place, *arms]
        codes = [main(command), main(["--debug", *command])]
    told = capfd.readouterr()
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert codes == [4, 4] and "401" in told.err, told.err
    assert len(door.heard) == 2 and any("authorization" in heard for heard in door.heard)
    sent = {heard["authorization"].partition(" ")[2] for heard in door.heard}
    spoken = (told.out, told.err, caplog.text, *files)
    assert [text for text in spoken for secret in (TOKEN, *sent) if secret in text] == []
