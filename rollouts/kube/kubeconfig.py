"""Kubeconfigs, plugins and the service accounts of pods, as the official client reads them; it takes a second to load.

A context is looked for in the files of `KUBECONFIG`, else in `~/.kube/config`. Without a context the current one
counts, and without any such file the service account of the pod we run in.

The official client goes on as nobody where a plugin fails or something is not there, and its errors quote what stands
in the files. Here each of these is an error, in one line and without secrets.
"""

from __future__ import annotations

import hashlib
import os
import re
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import FileOrData, KubeConfigLoader, KubeConfigMerger

from rollouts.errors import KubeconfigWrong, NoAccess
from rollouts.kube.credentials import ApiServer, Credential

# mypy: disable-error-code="no-untyped-call, no-any-return"
# The official client says that it is typed, and types none of its configuration.

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

BROKEN = (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What the official client fails with on a file of another shape."""


def namespace_of(context: str | None, *, kubeconfig: str | None = None) -> str:
    """The namespace that a context names, or that our pod is in; `default` when neither says.

    Raises:
        KubeconfigWrong: when there is no such context.
    """
    files = _files(kubeconfig)
    if files is None:
        path = SERVICE_ACCOUNT / "namespace"
        return path.read_text().strip() if path.exists() else "default"
    return str(_open(files, context).current_context["context"].get("namespace") or "default")


def require_context(context: str | None) -> None:
    """Be sure, before anybody is asked, that the kubeconfig has that context, or a current one, or that this is a pod.

    Raises:
        KubeconfigWrong: it has not; names those that it has.
    """
    if (files := _files(None)) is not None:
        _open(files, context)
    elif context or "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise _wrong("there is no kubeconfig, and this is no pod")


def load_credential(context: str | None, kubeconfig: str | None, *, reread: datetime) -> Credential:
    """What the files and plugins say now; what stands in a file of its own is good until `reread`.

    Raises:
        NoAccess: what they name is not there, or a plugin failed; `KubeconfigWrong` as `require_context`.
    """
    files = _files(kubeconfig)
    where = f"context {context or 'in use'} of {files}" if files else "the service account of this pod"
    configuration = Configuration()
    try:
        if files is None:
            require_context(context)
            InClusterConfigLoader(SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt").load_and_set(configuration)
            return _credential(configuration, None, reread)
        loader = _open(files, context)
        loader.load_and_set(configuration)
        user, proxy = loader._user, loader._cluster.safe_get("proxy-url")
        until = reread if user and "tokenFile" in user else getattr(loader, "expiry", None)
        return _credential(configuration, proxy, until)
    except NoAccess:
        raise
    except Exception as error:  # noqa: BLE001 (of clients of identity providers too)
        # Without a chain: the errors hold what the plugin printed.
        raise NoAccess(
            f"no credentials from {where}: {_why(error)}", hint="try `kubectl auth whoami` with the same context"
        ) from None


def _files(kubeconfig: str | None) -> str | None:
    """As `KUBECONFIG` says them; None when there is none, as in a pod."""
    # The official client reads the variable when it is imported, which may be long before.
    if path := kubeconfig or os.environ.get("KUBECONFIG"):
        return path
    usual = Path("~/.kube/config").expanduser()
    return str(usual) if usual.exists() else None


def _open(files: str, context: str | None) -> _Loader:
    merger, names = KubeConfigMerger(""), []
    for path in (Path(each).expanduser() for each in files.split(os.pathsep) if each):
        try:
            if path.exists():
                merger.load_config(str(path))
                names = sorted(str(each.value["name"]) for each in merger.config.value["contexts"])
        except (ConfigException, OSError, *BROKEN) as error:
            raise _wrong(f"the kubeconfig cannot be used: {path}{_place(error)}") from None
    if merger.config is None:
        raise _wrong(f"there is no kubeconfig at {files}")
    wanted, known = context or merger.config.safe_get("current-context"), ", ".join(names) or "none"
    if not wanted:
        raise KubeconfigWrong(f"{files} has no current context", hint=f"choose one with --context: {known}")
    if wanted not in names:
        raise KubeconfigWrong(f"no context {wanted} in {files}", hint=f"it has {known}")
    try:
        return _Loader(merger.config, active_context=wanted, config_base_path=None)
    except (ConfigException, *BROKEN) as error:
        raise _wrong(f"context {wanted} of {files} cannot be used: {_why(error)}") from None


def _place(error: Exception) -> str:
    """Where a file is no kubeconfig, and how, without what stands there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f":{error.problem_mark.line + 1}: not YAML at column {error.problem_mark.column + 1}"
    if isinstance(error, OSError):
        return f": {(error.strerror or 'an unreadable file').lower()}"
    return ": an empty file" if isinstance(error, ConfigException) else ": no lists of contexts, clusters and users"


def _wrong(what: str) -> KubeconfigWrong:
    return KubeconfigWrong(what, hint="set KUBECONFIG, or give --kubeconfig FILE")


def _why(error: Exception) -> str:
    """Without what stands in the files and what a plugin said, which may be secret: it comes after the first words."""
    if isinstance(error, ConfigException):
        return re.split(r"\n|\. ", str(error), maxsplit=1)[0]
    return f"{error.strerror}: {error.filename!r}" if isinstance(error, OSError) else type(error).__name__


_writing = Lock()
"""Regions are read by threads of their own, and upstream shares a certificate's file before it is written."""


class _Loader(KubeConfigLoader):
    """The official loader, which never goes on as nobody."""

    _user: Any
    _cluster: Any

    def set_active_context(self, context_name: str | None = None) -> None:
        super().set_active_context(context_name)
        user = self.current_context["context"].get("user")
        if user and self._user is None:
            raise ConfigException(f"it has no user {user}")
        if "server" not in self._cluster:
            raise ConfigException("its cluster has no server")

    def _load_authentication(self) -> None:
        super()._load_authentication()
        if self._user and "auth-provider" in self._user and "token" not in self.__dict__:
            raise ConfigException("auth-provider: it gave no token")

    def _load_from_exec_plugin(self) -> bool | None:
        if "exec" not in self._user:
            return None
        status = ExecProvider(self._user["exec"], self._get_base_path(self._cluster.path), self._cluster).run()
        if "token" in status:
            self.token = f"Bearer {status['token']}"
        elif "clientCertificateData" in status and "clientKeyData" in status:
            with _writing:
                self.cert_file, self.key_file = (
                    FileOrData(status, None, data_key_name=each, base64_file_content=False).as_file()
                    for each in ("clientCertificateData", "clientKeyData")
                )
        else:
            raise ConfigException("exec: the plugin gave neither a token nor a certificate with its key")
        if "expirationTimestamp" in status:
            self.expiry = parse_rfc3339(status["expirationTimestamp"])
        return True

    def _load_cluster_info(self) -> None:
        with _writing:
            super()._load_cluster_info()


def _credential(configuration: Configuration, own_proxy: str | None, good_until: datetime | None) -> Credential:
    files = [configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file]
    server = ApiServer(
        url=configuration.host,
        ca_file=str(files[0]) if files[0] else None,
        verify=bool(configuration.verify_ssl),
        tls_name=configuration.tls_server_name,
        # The environment's has exceptions.
        proxy=own_proxy or (None if proxy_bypass(urlsplit(configuration.host).netloc) else configuration.proxy),
        certificate_file=files[1],
        key_file=files[2],
        fingerprint=hashlib.sha256(b"".join(Path(each).read_bytes() for each in files if each)).hexdigest(),
    )
    token = configuration.api_key.get("BearerToken")
    # From a file it ends with a new line.
    return Credential(server, token.strip() if token else None, good_until)
