"""Who asks a Prometheus, and whom it is believed to be: a real one behind passwords and TLS, and doors of others."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.services.guarded import guarded
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
    PrometheusUntrusted,
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
    return folder


@pytest.fixture(scope="module")
def with_password(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[str]:
    """Over TLS, for one who knows the password."""
    server = {"cert_file": str(folder / "server.crt"), "key_file": str(folder / "server.key")}
    web = {"tls_server_config": server, "basic_auth_users": {"tidegate": HASHED}}
    with prometheus(tmp_path_factory.mktemp("basic"), web=web) as url:
        yield url


BASIC = {"basic": {"username": "tidegate", "password": {"env": "TIDEGATE_SPEC_PASSWORD"}}}


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
    with pytest.raises(PrometheusUntrusted, match="we trust the public authorities"):
        await asked(endpoint(with_password, auth=BASIC))
    other = tmp_path / "other.crt"
    other.write_bytes(Authority().certificate)
    with pytest.raises(PrometheusUntrusted, match=f"we trust those in the file {other}"):
        await asked(endpoint(with_password, ca={"file": str(other)}, auth=BASIC))
    other.write_text("no certificate")
    with pytest.raises(CredentialMissing, match="holds is no certificate in PEM"):
        await asked(endpoint(with_password, ca={"file": str(other)}, auth=BASIC))


def test_a_token_that_is_rotated_is_sent_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with guarded(lambda headers: headers.get("authorization") == "Bearer second") as door:
        client = PrometheusClient(endpoint(door.address, auth={"bearer": {"file": str(file)}}), timeout_seconds=5)
        file.write_text("first\n")
        with pytest.raises(PrometheusDenied, match=rf"refuses the token in the file {file} \(401\)"):
            client.query("up")
        file.write_text("second\n")
        assert client.query("up").kind == "vector"


def test_a_tenant_is_told_with_every_query() -> None:
    with guarded(lambda headers: headers.get("x-scope-orgid") == "team-a") as door:
        assert PrometheusClient(endpoint(door.address, tenant="team-a"), timeout_seconds=5).query("up").series
        with pytest.raises(PrometheusDenied):
            PrometheusClient(endpoint(door.address), timeout_seconds=5).query("up")


WAYS: dict[str, dict[str, Any]] = {
    "bearer": {"auth": {"bearer": {"env": "TIDEGATE_SPEC_SECRET"}}},
    "basic": {"auth": {"basic": {"username": "me", "password": {"env": "TIDEGATE_SPEC_SECRET"}}}},
    "tenant": {"tenant": "team-a"},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_says_who_asks_goes_to_no_other_place(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_SECRET", TOKEN)
    with guarded(lambda _: True) as elsewhere, guarded(lambda _: True, moved_to=elsewhere.address) as door:
        with pytest.raises(PrometheusUnreachable, match=f"redirects to {elsewhere.address}; name the address"):
            PrometheusClient(endpoint(door.address, **WAYS[way]), timeout_seconds=5).query("up")
        assert (len(door.heard), elsewhere.heard) == (1, [])


GATES = """\
apiVersion: tidegate/v1
kind: Gates
gates: {latency: {metric: ttft}}
"""


@pytest.mark.parametrize("way", ["bearer", "basic"])
def test_no_output_has_the_secret_even_when_the_server_repeats_it(
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_SPEC_SECRET", TOKEN)
    (tmp_path / "gates.yaml").write_text(GATES)
    with guarded(lambda _: False) as door:
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
