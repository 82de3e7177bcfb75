"""The way from a kubeconfig's context to a cluster."""

from __future__ import annotations

from rollouts.adapters.kube.client import PATIENCE_SECONDS, KubeClient
from rollouts.adapters.kube.kubeconfig import access, namespace_of
from tidegate.core.clock import Clock


def connect(
    context: str | None = None,
    *,
    clock: Clock,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> KubeClient:
    """A client for one namespace of one cluster; nothing is asked before the first request.

    Args:
        context: None for the current one, or the pod's own cluster where there is no kubeconfig.
        clock: for pauses between tries and for the ends of credentials.
        namespace: None for the context's.
        kubeconfig: overrules `KUBECONFIG`.
        patience_seconds: how long a request is said again; 0 for once.

    Raises:
        NoAccess: when no `namespace` is given and there is no such context.
    """
    return KubeClient(
        access(context, clock=clock, kubeconfig=kubeconfig),
        namespace=namespace or namespace_of(context, kubeconfig=kubeconfig),
        clock=clock,
        patience_seconds=patience_seconds,
    )
