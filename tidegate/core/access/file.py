"""The file of `--prometheus-access`: how a Prometheus is asked that no spec names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from tidegate.core.access.model import PrometheusAccess, PrometheusEndpoint
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec

OPTION = "--prometheus"


class PrometheusAccessFile(PrometheusAccess):
    """`tenant`, `ca` and `auth` as in a spec."""

    api_version: Literal["tidegate/v1"] = Field(default="tidegate/v1", alias="apiVersion")
    kind: Literal["PrometheusAccess"] = "PrometheusAccess"


def endpoint_at(url: str, access: Path | None) -> PrometheusEndpoint:
    """The endpoint at an address that the command line names, with the access of a file, if any.

    Raises:
        UsageError: it is no address, or has a name and password in it.
        SpecError: the file is wrong.
    """
    said = load_spec(access, PrometheusAccessFile) if access else PrometheusAccess()
    try:
        return PrometheusEndpoint(url=url, tenant=said.tenant, ca=said.ca, auth=said.auth)
    except ValidationError as error:
        raise UsageError(
            f"{OPTION}: found {url!r}; expected an address such as http://localhost:9090",
            hint="without a name, a password and a query: --prometheus-access FILE says who asks",
        ) from error
