"""A whole configuration of Alertmanager for the alerts of a service's SLOs, to start from or to merge into one's own.

A page wakes somebody at once. A ticket waits in a queue, and says nothing while the page of the same SLO does.
Secrets are files that Alertmanager reads; none is written here.
"""

from __future__ import annotations

from collections.abc import Sequence

from slo.metrics import SERVICE as SERVICE_OF_ENGINES
from slo.rules import SLOTH_SERVICE, SLOTH_SEVERITY, SLOTH_SLO, Document

PAGER, TICKETS = "pager", "tickets"
"""The receivers."""

SECRETS = "/etc/alertmanager/secrets/tidegate"
"""Where the Prometheus operator mounts a Secret named `tidegate` that the Alertmanager object lists."""


def alertmanager_config(service: str, availability: Sequence[str] = ()) -> Document:
    """Routes, receivers and inhibitions; `availability` names the SLOs whose page says that a region is down."""
    return {
        "route": {
            "receiver": TICKETS,  # what nobody has routed is not lost
            "group_by": ["alertname"],
            "routes": [_route(service)],
        },
        "inhibit_rules": [
            {
                "source_matchers": [_is(SLOTH_SEVERITY, "page")],
                "target_matchers": [_is(SLOTH_SEVERITY, "ticket")],
                "equal": ["region", SLOTH_SERVICE, SLOTH_SLO],
            },
            *_while_a_region_is_down(service, availability),
        ],
        "receivers": [_pager(), _tickets()],
    }


def _route(service: str) -> Document:
    """A notification for each SLO of each region: who is on call sees at once which one burns, and where."""
    return {
        "matchers": [_is(SLOTH_SERVICE, service)],
        "group_by": ["region", SLOTH_SERVICE, SLOTH_SLO, SLOTH_SEVERITY],
        "routes": [
            {
                "matchers": [_is(SLOTH_SEVERITY, "page")],
                "receiver": PAGER,
                # Both windows of a burn have held already: there is nothing left to wait for.
                "group_wait": "10s",
                "group_interval": "5m",
                "repeat_interval": "4h",
            },
            {
                "matchers": [_is(SLOTH_SEVERITY, "ticket")],
                "receiver": TICKETS,
                "group_wait": "5m",
                "group_interval": "1h",
                "repeat_interval": "3d",
            },
        ],
    }


def _while_a_region_is_down(service: str, availability: Sequence[str]) -> list[Document]:
    """Nobody needs to hear of a canary where users are not served at all."""
    if not availability:
        return []
    return [
        {
            "source_matchers": [
                _is(SLOTH_SERVICE, service),
                _is(SLOTH_SEVERITY, "page"),
                _is_any(SLOTH_SLO, availability),
            ],
            "target_matchers": [_is(SERVICE_OF_ENGINES, service), _is("role", "canary")],
            "equal": ["region"],
        }
    ]


def _pager() -> Document:
    return {
        "name": PAGER,
        "pagerduty_configs": [
            {
                "routing_key_file": f"{SECRETS}/pagerduty-routing-key",
                "severity": "critical",
                "description": "{{ .CommonAnnotations.summary }}",
                "details": {
                    **{label: f"{{{{ .CommonLabels.{label} }}}}" for label in ("region", SLOTH_SERVICE, SLOTH_SLO)},
                    **{name: f"{{{{ .CommonAnnotations.{name} }}}}" for name in ("description", "runbook")},
                },
            }
        ],
    }


def _tickets() -> Document:
    return {
        "name": TICKETS,
        "webhook_configs": [
            {
                "url": "http://ticket-queue.monitoring.svc/alerts",
                "http_config": {"authorization": {"credentials_file": f"{SECRETS}/ticket-queue-token"}},
            }
        ],
    }


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _is_any(label: str, values: Sequence[str]) -> str:
    """Names of SLOs hold no sign of a regular expression but the dot."""
    return f'{label}=~"{"|".join(value.replace(".", "[.]") for value in values)}"'
