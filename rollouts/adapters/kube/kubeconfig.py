"""Credentials as `kubectl` finds them.

A context is looked for in the files of `KUBECONFIG`, else in `~/.kube/config`. Without a context the current one
counts, and without any such file the service account of the pod we run in. A user with a plugin is left to the
official client; all others are read here, since that takes a second to load.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from rollouts.adapters.kube.access import EARLY, Access, Credential
from rollouts.adapters.kube.plain_config import BrokenConfig, Context, Merged, credential_of, merged, of_service_account
from rollouts.errors import NoAccess
from tidegate.core.beside import beside
from tidegate.core.clock import Clock

REREAD = timedelta(minutes=1) + EARLY
"""How long a token from a file is used: client-go reads it again each minute, since the kubelet rotates it in place."""

PLUGIN_SECONDS = 60.0
"""Plugins ask a cloud, for seconds; the official client would wait for ever, and every request with it."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BROKEN = (BrokenConfig, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What comes of a file that is not as it should be, here and in the official client, which checks little."""

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
                return await beside(_read, context, files, clock.now())
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
        said = SERVICE_ACCOUNT / "namespace"
        return said.read_text().strip() if said.exists() else "default"
    try:
        return _context(_merged(files), context, files).namespace or "default"
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
    try:
        if files is None:
            if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
                raise NoAccess("there is no kubeconfig, and this is no pod", hint="set KUBECONFIG")
            return of_service_account(SERVICE_ACCOUNT, os.environ, good_until=now + REREAD)
        found = _context(_merged(files), context, files)
        if found.needs_plugin:
            return _by_plugin(files, found.name)
        return credential_of(found, good_until=now + REREAD if "tokenFile" in found.user else None)
    except BROKEN as error:
        # Without its chain: the parser's errors hold what the plugin printed.
        raise _no_access(context, files, error) from None


def _by_plugin(files: str, context: str) -> Credential:
    try:
        from rollouts.adapters.kube.plugin_config import by_plugin
    except ModuleNotFoundError as error:
        raise NoAccess(
            f"context {context} has its credentials from a plugin, which needs the package kubernetes",
            hint="give its user a token or a certificate, or install tidegate whole",
            detail=str(error),
        ) from None
    return by_plugin(files, context)


def _merged(files: str) -> Merged:
    found = merged(files)
    if found is None:
        raise NoAccess(f"none of the files {files} exists", hint="set KUBECONFIG")
    return found


def _context(found: Merged, name: str | None, files: str) -> Context:
    """The context of that name, or the current one."""
    wanted = name or found.current
    if wanted is None or wanted not in found.contexts:
        names = ", ".join(sorted(found.contexts)) or "none"
        raise NoAccess(f"no context {wanted} in {files}", hint=f"it has {names}")
    return found.context(wanted)


def _no_access(context: str | None, files: str | None, error: Exception) -> NoAccess:
    """What went wrong, without what may be a secret in it."""
    where = f"context {context or 'in use'} of {files}" if files else "the service account of this pod"
    why = SECRET.sub("***", str(error)) if isinstance(error, BrokenConfig | OSError) else type(error).__name__
    return NoAccess(
        f"no credentials from {where}: {' '.join(why.split())}",
        hint="try `kubectl auth whoami` with the same context",
    )
