"""Plugins, certificates and TLS, for real."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.services.sockets import Authority, Heard, RawServer, answer, raw_server, tls_of

from rollouts.errors import NoAccess, NoConnection
from rollouts.kube import client as client_module
from rollouts.kube.client import KubeClient, connect
from tidegate.core.clock import SystemClock

PLUGIN = """
import json, pathlib, sys, time
runs = pathlib.Path(sys.argv[1])
number = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * number)
status = json.loads(sys.argv[2])
if "sleep" in status:
    time.sleep(status["sleep"])
if "fail" in status:
    print("no session for eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ; run login", file=sys.stderr)
    sys.exit(7)
if "token" in status:
    status["token"] += str(number)
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


async def version(heard: Heard) -> AsyncIterator[bytes]:
    yield answer({"gitVersion": "v1.34.1", "user": heard.peer, "token": heard.headers.get("authorization")})


def kubeconfig(folder: Path, server: RawServer, user: dict[str, Any], **cluster: Any) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": "eu", "context": {"cluster": "eu", "user": "eu", "namespace": "llm"}}],
        "clusters": [{"name": "eu", "cluster": {"server": server.url, **cluster}}],
        "users": [{"name": "eu", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    return str(folder / "config")


def plugin(folder: Path, status: dict[str, Any]) -> dict[str, Any]:
    (folder / "plugin.py").write_text(PLUGIN)
    args = [str(folder / "plugin.py"), str(folder / "runs"), json.dumps(status)]
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never",
            "command": sys.executable,
            "args": args,
        }
    }


def opened(config: str) -> KubeClient:
    return connect("eu", kubeconfig=config, clock=SystemClock(), retry_seconds=0)


async def test_a_plugins_token_is_used_until_it_expires(tmp_path: Path) -> None:
    soon = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    past = "2020-01-01T00:00:00Z"
    async with raw_server(version) as server:
        client = opened(kubeconfig(tmp_path, server, plugin(tmp_path, {"token": "t", "expirationTimestamp": soon})))
        assert client.namespace == "llm"
        for _ in range(2):
            assert json.loads(await client.text("/version"))["token"] == "Bearer t1"
        await client.close()
        client = opened(kubeconfig(tmp_path, server, plugin(tmp_path, {"token": "t", "expirationTimestamp": past})))
        for number in (2, 3):
            assert json.loads(await client.text("/version"))["token"] == f"Bearer t{number}"
        await client.close()


async def test_a_plugin_that_fails_says_so_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_server(version) as server:
        client = opened(kubeconfig(tmp_path, server, plugin(tmp_path, {"fail": True})))
        with pytest.raises(NoAccess) as caught:
            await client.text("/version")
        await client.close()
    assert caught.value.message.endswith("exec: process returned 7")
    assert "eyJ" not in caplog.text + "".join(capfd.readouterr())
    assert server.heard == []


async def test_a_plugin_that_gives_nothing_is_no_anonymous_access(tmp_path: Path) -> None:
    async with raw_server(version) as server:
        client = opened(kubeconfig(tmp_path, server, plugin(tmp_path, {"clientCertificateData": "only"})))
        with pytest.raises(NoAccess, match="neither a token nor a certificate"):
            await client.text("/version")
        await client.close()
    assert server.heard == []


async def test_a_plugin_that_does_not_end_is_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PLUGIN_SECONDS", 0.2)
    async with raw_server(version) as server:
        client = opened(kubeconfig(tmp_path, server, plugin(tmp_path, {"sleep": 2})))
        with pytest.raises(NoAccess, match=r"the plugin of context eu gave nothing in 0\.2 s"):
            await client.text("/version")
        await client.close()


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.pair("tidegate")
    user = {"client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key)}
    async with raw_server(version, tls=tls_of(tmp_path, authority, ask=True)) as server:
        config = kubeconfig(tmp_path, server, user, **{"certificate-authority-data": data(authority.certificate)})
        client = opened(config)
        assert json.loads(await client.text("/version"))["user"] == "tidegate"
        await client.close()


async def test_a_plugins_certificate(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.pair("from-plugin")
    user = plugin(tmp_path, {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()})
    async with raw_server(version, tls=tls_of(tmp_path, authority, ask=True)) as server:
        config = kubeconfig(tmp_path, server, user, **{"certificate-authority-data": data(authority.certificate)})
        client = opened(config)
        assert json.loads(await client.text("/version"))["user"] == "from-plugin"
        await client.close()


@pytest.mark.parametrize(
    ("trust", "reached"),
    [
        ({}, False),
        ({"insecure-skip-tls-verify": True}, True),
        ({"tls-server-name": "kubernetes.default"}, True),
        ({"tls-server-name": "another.default"}, False),
    ],
)
async def test_whom_to_trust(tmp_path: Path, trust: dict[str, Any], reached: bool) -> None:
    authority = Authority()
    if "tls-server-name" in trust:
        trust = trust | {"certificate-authority-data": data(authority.certificate)}
    async with raw_server(version, tls=tls_of(tmp_path, authority, host="kubernetes.default")) as server:
        client = opened(kubeconfig(tmp_path, server, {"token": "t"}, **trust))
        if reached:
            assert json.loads(await client.text("/version"))["token"] == "Bearer t"
        else:
            with pytest.raises(NoConnection) as caught:
                await client.text("/version")
            assert "CERTIFICATE_VERIFY_FAILED" in (caught.value.detail or "")
        await client.close()


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"client-certificate-data": data(b"no PEM"), "client-key-data": data(b"no PEM")}, "cannot be used"),
        ({"client-certificate-data": data(Authority().pair("a").certificate)}, "cannot be used"),
    ],
)
async def test_certificates_that_are_none(tmp_path: Path, user: dict[str, Any], said: str) -> None:
    authority = Authority()
    async with raw_server(version, tls=tls_of(tmp_path, authority)) as server:
        config = kubeconfig(tmp_path, server, user, **{"certificate-authority-data": data(authority.certificate)})
        client = opened(config)
        with pytest.raises(NoAccess, match=said):
            await client.text("/version")
        await client.close()
