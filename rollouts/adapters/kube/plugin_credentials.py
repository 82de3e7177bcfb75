"""Credentials that a plugin gives, by the official client's own configuration; it takes a second to load."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from threading import Lock

from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import FileOrData, KubeConfigLoader, KubeConfigMerger

from rollouts.adapters.kube.kubeconfig import ApiServer, BrokenKubeconfig, Credential

# mypy: disable-error-code="no-untyped-call, no-any-return"
# The official client says that it is typed, and types none of its configuration.


def plugin_credential(files: str, context: str) -> Credential:
    """What the plugin of that context says now.

    Raises:
        BrokenKubeconfig, OSError: it failed, or gave nothing of use.
    """
    configuration = Configuration()
    loader = _Loader(config_dict=KubeConfigMerger(files).config, active_context=context, config_base_path=None)
    try:
        loader.load_and_set(configuration)
    except ConfigException as error:
        # Without its chain: the parser's errors hold what the plugin printed.
        raise BrokenKubeconfig(str(error)) from None
    return _credential(configuration, loader.good_until())


_writing = Lock()
"""Regions are read by threads of their own, and upstream shares a certificate's file before it is written."""


class _Loader(KubeConfigLoader):
    """The official loader; but a plugin that fails is an error, where upstream logs its words and goes on as nobody."""

    def good_until(self) -> datetime | None:
        return self.expiry if "expiry" in self.__dict__ else None

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

    def _load_cluster_info(self) -> None:
        with _writing:
            super()._load_cluster_info()

    def _file(self, status: dict[str, str], name: str) -> str:
        with _writing:
            return FileOrData(status, None, data_key_name=name, base64_file_content=False).as_file()


def _credential(configuration: Configuration, good_until: datetime | None) -> Credential:
    files = [configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file]
    server = ApiServer(
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
