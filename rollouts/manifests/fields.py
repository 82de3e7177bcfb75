"""Types of fields in `fleet`: how a person writes what Kubernetes has names and amounts for."""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field


def _block(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("a block of addresses such as 10.20.0.0/16") from None


ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""Name of an object or a namespace."""

Host = Annotated[str, Field(pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")]
"""Name under which users reach a gateway; `*.` stands for one name before the others."""

Bytes = Annotated[str, Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$")]
"""Memory or disk, such as 64Gi."""

Cores = Annotated[str, Field(pattern=r"^([1-9][0-9]*m?|[0-9]+\.[0-9]{1,3})$")]
"""Processors, such as 8 or 500m."""

LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9][-a-z0-9.]{0,251}[a-z0-9]/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
]
LabelText = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")]

Block = Annotated[str, AfterValidator(_block)]
"""Addresses such as 10.20.0.0/16."""


def host_in(url: str) -> str:
    """The name in an address; empty when it is a number, by which no gateway chooses a route."""
    host = urlsplit(url).hostname or ""
    return "" if re.fullmatch(r"[\d.]+|.*:.*", host) else host


def whole_seconds(length: timedelta) -> int:
    """As Kubernetes and Argo Rollouts take a `Duration`; never 0 of something, which often means never."""
    return math.ceil(length.total_seconds())
