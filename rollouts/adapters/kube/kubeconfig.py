# mypy: disable-error-code="no-untyped-call, no-any-return"
# The official client says that it is typed, and types none of its configuration.
"""Credentials as `kubectl` finds them, by the official client's own configuration.

A context is looked for in the files of `KUBECONFIG`, else in `~/.kube/config`. Without a context the current one
counts, and without any such file the service account of the pod we run in.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_incluster_config
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from rollouts.adapters.kube.access import EARLY, Access, Credential, Server
from rollouts.errors import NoAccess
from tidegate.core.clock import Clock

REREAD = timedelta(minutes=1) + EARLY
"""How long a token from a file is used: client-go reads it again each minute, since the kubelet rotates it in place."""

PLUGIN_SECONDS = 60.0
"""Plugins ask a cloud, for seconds; the official client would wait for ever, and every request with it."""

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

BROKEN = (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What the official client raises for a file that is not as it should be: it checks little."""

SECRET = re.compile(
    r"""(?<![^\s'"])(?!/)(?=[^\s'"]*\d)(?=[^\s'"]*[A-Z])(?=[^\s'"]*[a-z])[^\s'"]{20,}|(?=[^\s'"/]*\d)[^\s'"/]{20,}"""
)
"""What a token or key looks like in a plugin's complaint: a long word with digits in it; paths should stay."""


def access(context: str | None, *, clock: Clock, kubeconfig: str | None = None) -> Access:
    """The way in; nothing is read before the first request.

    `kubeconfig` overrules `KUBECONFIG`, and like it may name several files.
    """

    async def read() -> Credential:
        files = _files(kubeconfig)
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                return await asyncio.to_thread(_read, context, files, clock.now())
        except TimeoutError:
            raise NoAccess(
                f"the plugin of context {context or 'in use'} gave nothing in {PLUGIN_SECONDS:g} s"
            ) from None

    return Access(read, clock)


def namespace_of(context: str | None, *, kubeconfig: str | None = None) -> str:
    """The namespace that a context names, or that our pod is in; `default` when neither says.

    Raises:
        NoAccess: when there is no such context.
    """
    files = _files(kubeconfig)
    if files is None:
        return POD_NAMESPACE.read_text().strip() if POD_NAMESPACE.exists() else "default"
    try:
        return str(_context(_merged(files), context, files)["context"].safe_get("namespace") or "default")
    except BROKEN as error:
        raise _no_access(context, files, error) from None


def _files(kubeconfig: str | None) -> str | None:
    """As `KUBECONFIG` says them; None when there is none, as in a pod."""
    # The official client reads the variable when it is imported, which may be long before.
    said = kubeconfig or os.environ.get("KUBECONFIG")
    if said:
        return said
    usual = Path("~/.kube/config").expanduser()
    return str(usual) if usual.exists() else None


def _read(context: str | None, files: str | None, now: datetime) -> Credential:
    configuration = Configuration()
    try:
        if files is None:
            if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
                raise NoAccess("there is no kubeconfig, and this is no pod", hint="set KUBECONFIG")
            load_incluster_config(client_configuration=configuration, try_refresh_token=False)
            return _credential(configuration, now + REREAD)
        merged = _merged(files)
        name = _context(merged, context, files)["name"]
        loader = _Loader(config_dict=merged, active_context=name, config_base_path=None)
        loader.load_and_set(configuration)
        return _credential(configuration, loader.good_until(now))
    except BROKEN as error:
        # Without its chain: the parser's errors hold what the plugin printed.
        raise _no_access(context, files, error) from None


def _merged(files: str) -> ConfigNode:
    merged = KubeConfigMerger(files).config
    if merged is None:
        raise NoAccess(f"none of the files {files} exists", hint="set KUBECONFIG")
    return merged


def _context(merged: ConfigNode, name: str | None, files: str) -> ConfigNode:
    """The context of that name, or the current one."""
    wanted = name or merged["current-context"]
    for context in merged["contexts"]:
        if context["name"] == wanted:
            return context
    names = ", ".join(sorted(context["name"] for context in merged["contexts"])) or "none"
    raise NoAccess(f"no context {wanted} in {files}", hint=f"it has {names}")


class _Loader(KubeConfigLoader):
    """The official loader; but a plugin that fails is an error, where upstream logs its words and goes on as nobody."""

    def good_until(self, now: datetime) -> datetime | None:
        if "expiry" in self.__dict__:
            return self.expiry
        return now + REREAD if self._user and "tokenFile" in self._user else None

    def _load_from_exec_plugin(self) -> bool | None:
        if self._user is None or self._cluster is None or "exec" not in self._user:
            return None
        base = self._get_base_path(self._cluster.path)
        status = ExecProvider(self._user["exec"], base, self._cluster).run()
        if "token" in status:
            self.token = f"Bearer {status['token']}"
        elif "clientCertificateData" in status and "clientKeyData" in status:
            self.cert_file = self._file(status, "clientCertificateData")
            self.key_file = self._file(status, "clientKeyData")
        else:
            raise ConfigException("exec: the plugin gave neither a token nor a certificate with its key")
        if "expirationTimestamp" in status:
            self.expiry = parse_rfc3339(status["expirationTimestamp"])
        return True

    def _file(self, status: dict[str, str], name: str) -> str:
        return FileOrData(status, None, data_key_name=name, base64_file_content=False).as_file()


def _credential(configuration: Configuration, good_until: datetime | None) -> Credential:
    files = [configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file]
    server = Server(
        url=str(configuration.host).rstrip("/"),
        ca_file=configuration.ssl_ca_cert,
        verify=bool(configuration.verify_ssl),
        tls_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        fingerprint=hashlib.sha256(b"".join(Path(each).read_bytes() for each in files if each)).hexdigest(),
    )
    return Credential(server, configuration.api_key.get("BearerToken"), good_until)


def _no_access(context: str | None, files: str | None, error: Exception) -> NoAccess:
    """What went wrong, without what may be a secret in it."""
    where = f"context {context or 'in use'} of {files}" if files else "the service account of this pod"
    why = SECRET.sub("***", str(error)) if isinstance(error, ConfigException | OSError) else type(error).__name__
    return NoAccess(
        f"no credentials from {where}: {' '.join(why.split())}",
        hint="try `kubectl auth whoami` with the same context",
    )
