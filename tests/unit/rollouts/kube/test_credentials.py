"""Credentials: renewed in time, once for many, and never shown."""

from __future__ import annotations

import asyncio
import base64
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.server import FakeTransport
from kubernetes.client import Configuration

from rollouts.errors import KubeconfigWrong, NoAccess, Unauthorized
from rollouts.kube import kubeconfig
from rollouts.kube.client import KubeClient, credential_provider
from rollouts.kube.credentials import ApiServer, Credential, CredentialProvider
from rollouts.kube.kubeconfig import namespace_of, require_context
from rollouts.kube.resources import PODS

SERVER = ApiServer("https://x", proxy="http://user:hunter2@proxy")


class Issuer:
    """Gives a new token each time it is asked."""

    def __init__(self, *, good_until: datetime | None = None) -> None:
        self.good_until = good_until
        self.given = 0
        self.broken = False

    async def __call__(self) -> Credential:
        await asyncio.sleep(0)
        if self.broken:
            raise NoAccess("the plugin failed")
        self.given += 1
        return Credential(SERVER, f"Bearer token-{self.given}", self.good_until)


@pytest.fixture
def issuer(time: SimulatedTime) -> Issuer:
    return Issuer(good_until=time.now() + timedelta(minutes=15))


@pytest.fixture
def client(issuer: Issuer, api: Api, time: SimulatedTime) -> KubeClient:
    access = CredentialProvider(issuer, time)
    return KubeClient(access, namespace="llm", clock=time, transport=FakeTransport(api))


@pytest.mark.parametrize(("minutes", "given"), [(15, 2), (None, 1)])
async def test_a_credential_is_kept_until_shortly_before_its_end(
    time: SimulatedTime, minutes: int | None, given: int
) -> None:
    issuer = Issuer(good_until=time.now() + timedelta(minutes=minutes) if minutes else None)
    access = CredentialProvider(issuer, time)
    first = await access.credential()
    time.advance(14 * 60)
    assert await access.credential() is first
    time.advance(30)
    assert (await access.credential()).authorization == f"Bearer token-{given}"


async def test_a_refused_token_is_renewed_once_however_many_were_refused(
    client: KubeClient, issuer: Issuer, api: Api
) -> None:
    api.access.require("token-2")
    await asyncio.gather(*(client.list(PODS) for _ in range(20)))
    assert issuer.given == 2
    api.access.require("none")
    with pytest.raises(Unauthorized):
        await client.list(PODS)
    assert issuer.given == 3


async def test_the_old_credential_is_used_while_no_new_one_can_be_got(
    client: KubeClient, issuer: Issuer, api: Api, time: SimulatedTime, caplog: pytest.LogCaptureFixture
) -> None:
    api.access.require("token-1")
    await client.list(PODS)
    issuer.broken = True
    time.advance(15 * 60 - 20)
    await client.list(PODS)
    assert caplog.messages == ["the plugin failed"]
    api.access.require("token-2")
    with pytest.raises(NoAccess):
        await client.list(PODS)
    issuer.broken = False
    await client.list(PODS)


async def test_no_secret_is_ever_shown(
    client: KubeClient, api: Api, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [repr(await issuer()), repr(SERVER), repr(vars(client))]
    api.access.require("none")
    with pytest.raises(Unauthorized) as caught:
        await client.list(PODS)
    shown += [repr(caught.value), str(caught.value), caught.value.detail or "", caplog.text]
    assert not [text for text in shown if "token-" in text or "hunter2" in text]


def config(**users: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig with one context, cluster and user for each name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(users)),
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in users],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443/"}} for name in users],
        "users": [{"name": name, "user": user} for name, user in users.items()],
    }


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def both(tmp_path: Path) -> str:
    return written(tmp_path / "config", config(eu={"token": "t-eu"}, us={"token": "t-us"}))


async def of(context: str | None, time: SimulatedTime, files: str | None = None) -> Credential:
    return await credential_provider(context, clock=time, kubeconfig=files).credential()


async def test_each_context_has_its_own_server_and_user(both: str, time: SimulatedTime) -> None:
    for name, context in (("eu", "eu"), ("us", "us"), ("eu", None)):
        found = await of(context, time, both)
        assert (found.server.url, found.authorization) == (f"https://{name}.example:6443", f"Bearer t-{name}")
        assert found.good_until is None


async def test_the_environment_names_the_files_at_the_time_of_asking(
    tmp_path: Path, time: SimulatedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/.kube").mkdir(parents=True)
    written(tmp_path / "home/.kube/config", config(eu={"token": "t-usual"}))
    assert (await of("eu", time)).authorization == "Bearer t-usual"
    one = written(tmp_path / "one", config(eu={"token": "t-eu"}))
    two = written(tmp_path / "two", config(us={"token": "t-us"}))
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    assert (await of("us", time)).authorization == "Bearer t-us"


async def test_a_token_from_a_file_is_read_again_each_minute(tmp_path: Path, time: SimulatedTime) -> None:
    token = tmp_path / "token"
    token.write_text("t1\n")
    way = credential_provider(
        "eu", clock=time, kubeconfig=written(tmp_path / "config", config(eu={"tokenFile": str(token)}))
    )
    assert (await way.credential()).authorization == "Bearer t1"
    token.write_text("t2")
    assert (await way.credential()).authorization == "Bearer t1"
    time.advance(61)
    assert (await way.credential()).authorization == "Bearer t2"


def test_contexts_that_are_read_at_once_never_share_a_certificate_that_is_half_written() -> None:
    def read(content: dict[str, Any]) -> bytes:
        together.wait()
        configuration = Configuration()
        kubeconfig._Loader(content, config_base_path="").load_and_set(configuration)
        return Path(configuration.ssl_ca_cert).read_bytes()

    threads = 8
    together = Barrier(threads)
    with ThreadPoolExecutor(threads) as regions:
        for number in range(5):
            content, certificate = config(eu={}), bytes([number]) * 2_000_000
            content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(certificate).decode()
            assert set(regions.map(read, [content] * threads)) == {certificate}


async def test_everything_else_that_a_cluster_says(
    tmp_path: Path, time: SimulatedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = config(eu={"client-certificate": "cert.pem", "client-key": "key.pem"})
    content["clusters"][0]["cluster"] |= {
        "certificate-authority": "ca.pem",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes.default",
        "proxy-url": "http://proxy:3128",
    }
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("NO_PROXY", "eu.example")
    way = credential_provider("eu", clock=time, kubeconfig=written(tmp_path / "config", content))
    first = await way.credential()
    server = first.server
    assert [server.ca_file, server.certificate_file, server.key_file] == [
        str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")
    ]
    assert (server.verify, server.tls_name, server.proxy) == (False, "kubernetes.default", "http://proxy:3128")
    assert first.authorization is None
    (tmp_path / "cert.pem").write_text("rotated")
    assert (await way.credential(first)).server != server


@pytest.mark.parametrize(("but", "proxy"), [("", "http://proxy:3128"), ("eu.example", None)])
async def test_the_environments_proxy_has_exceptions(
    both: str, time: SimulatedTime, monkeypatch: pytest.MonkeyPatch, but: str, proxy: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", but)
    assert (await of("eu", time, both)).server.proxy == proxy


async def test_a_pod_is_its_service_account(
    tmp_path: Path, time: SimulatedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("token", "t-pod"), ("ca.crt", "CA"), ("namespace", "llm\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    require_context(None)
    assert namespace_of(None) == "llm"
    way = credential_provider(None, clock=time)
    found = await way.credential()
    assert (found.server.url, found.authorization) == ("https://10.0.0.1:443", "bearer t-pod")
    (tmp_path / "token").write_text("t-rotated")
    time.advance(61)
    assert (await way.credential()).authorization == "bearer t-rotated"
    (tmp_path / "token").unlink()
    with pytest.raises(NoAccess, match=r"service account of this pod: Service token file does not exist\.; try"):
        await of(None, time)


def test_the_namespace_of_a_context(tmp_path: Path) -> None:
    content = config(eu={}, us={})
    content["contexts"][1]["context"]["namespace"] = "llm"
    file = written(tmp_path / "config", content)
    assert namespace_of("us", kubeconfig=file) == "llm"
    assert namespace_of(None, kubeconfig=file) == "default"
    assert namespace_of(None) == "default"
    with pytest.raises(KubeconfigWrong, match=r"no context ap in .*; it has eu, us"):
        namespace_of("ap", kubeconfig=file)


async def test_without_any_kubeconfig(tmp_path: Path, time: SimulatedTime) -> None:
    with pytest.raises(KubeconfigWrong, match="no kubeconfig, and this is no pod; set KUBECONFIG"):
        await of(None, time)
    with pytest.raises(KubeconfigWrong, match=r"there is no kubeconfig at .*/none; set KUBECONFIG"):
        await of(None, time, str(tmp_path / "none"))
    with pytest.raises(KubeconfigWrong):
        namespace_of(None, kubeconfig=str(tmp_path / "none"))


SHAPE = "no lists of contexts, clusters and users"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "config: an empty file"),
        (b"a: [s3cret", "config:1: not YAML at column 11"),
        (b"just words", f"config: {SHAPE}"),
        (b"contexts: [words]", f"config: {SHAPE}"),
        (b"current-context: a\ncontexts: [{name: a, s3cret: 1}]", "Invalid kube-config file"),
        (b"contexts: [{name: eu}, {name: us}]", "no current context; choose one with --context: eu, us"),
    ],
    ids=["empty", "no-yaml", "words", "no-name", "no-context", "no-current"],
)
def test_a_file_that_is_no_kubeconfig_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
) -> None:
    (tmp_path / "config").write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(KubeconfigWrong) as caught:
        require_context(None)
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.exit_code == 2


SECRET_USER = {"users": [{"name": "eu", "token": "hunter2"}]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (config(eu={}) | {"clusters": []}, "context eu of .* cannot be used"),
        (config(eu={}) | {"clusters": [{"name": "eu", "cluster": {}}]}, "its cluster has no server"),
        (config(eu={}) | {"users": []}, "it has no user eu"),
        (config(eu={}) | SECRET_USER, "Invalid kube-config file"),
        (config(eu={"tokenFile": "/nowhere/token"}), "No such file or directory: '/nowhere/token'"),
        (config(eu={"client-certificate": "nowhere.pem"}), "File does not exist"),
        (config(eu={"auth-provider": {"name": "azure"}}), "auth-provider: it gave no token"),
        (config(eu={"exec": {"command": "x"}}), "exec: malformed request"),
    ],
    ids=["no-cluster", "no-server", "no-user", "not-a-user", "token", "certificate", "provider", "plugin"],
)
async def test_whoever_cannot_be_found_is_not_nobody(
    tmp_path: Path, time: SimulatedTime, content: dict[str, Any], said: str
) -> None:
    with pytest.raises(NoAccess, match=said) as caught:
        await of("eu", time, written(tmp_path / "config", content))
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
