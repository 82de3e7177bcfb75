"""Where an MLflow server is and who asks it, from its address and the variables that MLflow's own client reads."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.core.errors import UsageError
from tidegate.core.text import redacted

PROXIED = "mlflow-artifacts"
"""The scheme of artifacts that the tracking server hands out itself."""
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
"""The variable that limits a request, of MLflow's own library and of ours."""
TRANSFER_SECONDS = 120.0
"""Of silence in the middle of a file: a store may take its time to put it away."""
API = "/api/2.0/mlflow"
ARTIFACTS_API = "/api/2.0/mlflow-artifacts/artifacts"
CREDENTIALS = Path(".mlflow/credentials")
"""Below the home folder: where MLflow looks for a name and a password that the environment does not have."""
OF_THE_LIBRARY = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")
"""Ways to sign requests that only MLflow's own client has, by plugins."""
_TRUE = frozenset({"true", "1"})


@dataclass(frozen=True)
class MlflowAccess:
    """Who asks an MLflow server, and how patiently."""

    url: str
    """Without a name and password."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    workspace: str | None = None
    insecure: bool = False
    """Take any certificate."""
    server_certificates: str | None = None
    """A file or folder of authorities, instead of the usual ones."""
    client_certificate: str | None = None
    timeout_seconds: float = 10.0
    """Of one call, its retries included; of files, between two parts of them at least `TRANSFER_SECONDS`."""
    retries: int = 3
    """MLflow's own 7 take four minutes to say that nobody is there; 3 wait about 15 seconds."""
    backoff_factor: float = 2.0
    """Before each retry after the first: this, twice this, four times this, in seconds."""


def limit_calls(seconds: float) -> None:
    """Let each call to MLflow take so long, in stores that are opened from now on, unless the environment says it.

    MLflow's own library and our client of its servers read it there.
    """
    os.environ.setdefault(TIMEOUT, f"{seconds:g}")


def call_seconds(environment: Mapping[str, str]) -> float:
    """How long a call to a store may take with all requests that it makes, such as for the pages of a list.

    Raises:
        UsageError: a variable holds no number.
    """
    return max(60.0, 6 * _number(environment, TIMEOUT, MlflowAccess.timeout_seconds))


def is_server(uri: str) -> bool:
    """Whether that is the address of an MLflow server, and not a store that MLflow's library opens itself."""
    return urlsplit(uri).scheme in {"http", "https"}


def root_on(url: str, address: str) -> str | None:
    """The path below which that server has the artifacts; None when it does not hand them out."""
    parts = urlsplit(address)
    ours = parts.netloc in ("", urlsplit(url).netloc)
    return parts.path.strip("/") if parts.scheme == PROXIED and ours else None


def asked_by_rest(uri: str, environment: Mapping[str, str]) -> bool:
    """Whether we can ask it without MLflow's library."""
    return is_server(uri) and not any(environment.get(name, "").lower() not in {"", "false"} for name in OF_THE_LIBRARY)


def access_to(uri: str, environment: Mapping[str, str], home: Path) -> MlflowAccess:
    """What MLflow's own client would send there.

    Raises:
        UsageError: a variable holds no number.
    """
    name, password = _basic(uri, environment, home)
    return MlflowAccess(
        url=redacted(uri).rstrip("/"),
        basic=(name, password) if name and password else None,
        token=environment.get("MLFLOW_TRACKING_TOKEN") or None,
        workspace=environment.get("MLFLOW_WORKSPACE") or None,
        insecure=environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in _TRUE,
        server_certificates=environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or None,
        client_certificate=environment.get("MLFLOW_TRACKING_CLIENT_CERT_PATH") or None,
        timeout_seconds=_number(environment, TIMEOUT, MlflowAccess.timeout_seconds),
        retries=int(_number(environment, "MLFLOW_HTTP_REQUEST_MAX_RETRIES", MlflowAccess.retries)),
        backoff_factor=_number(environment, "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", MlflowAccess.backoff_factor),
    )


def _basic(uri: str, environment: Mapping[str, str], home: Path) -> tuple[str | None, str | None]:
    """The environment's word goes first, then the file's, then the address's; a name and a password each."""
    kept = configparser.ConfigParser(interpolation=None)
    try:
        kept.read(home / CREDENTIALS, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        raise unreadable_credentials() from None
    parts = urlsplit(uri)
    found = []
    for key, written in (("MLFLOW_TRACKING_USERNAME", parts.username), ("MLFLOW_TRACKING_PASSWORD", parts.password)):
        in_file = kept.get("mlflow", key.lower(), fallback=None)
        found.append(environment.get(key) or in_file or (unquote(written) if written else None))
    return found[0], found[1]


def unreadable_credentials() -> UsageError:
    """What is wrong with the file of a name and a password; nothing of it is quoted."""
    return UsageError(
        f"~/{CREDENTIALS}: found no INI file; expected a section [mlflow] with mlflow_tracking_username and "
        "mlflow_tracking_password",
        hint="correct the file, or remove it",
    )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < inf:
        raise UsageError(f"{name}: expected a number of 0 or more; found {text!r}")
    return number
