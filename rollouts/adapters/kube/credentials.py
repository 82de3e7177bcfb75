"""Credentials for an API server, found as `kubectl` finds them and renewed before they expire.

A context is looked for in the files of `KUBECONFIG`, else in `~/.kube/config`. Without a context the current one
counts, and without any such file the service account of the pod we run in. A user with a plugin is left to the
official client (`plugin_credentials`); all others are read by `kubeconfig`, since the client takes a second to load.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import yaml

from rollouts.adapters.kube.kubeconfig import (
    ApiServer,
    BrokenKubeconfig,
    Credential,
    Kubeconfig,
    KubeContext,
    credential_of,
    read_kubeconfig,
    service_account_credential,
)
from rollouts.errors import KubeconfigWrong, NoAccess
from tidegate.core.adapters.extras import install_command
from tidegate.core.clock import Clock
from tidegate.core.threads import call_in_thread

log = logging.getLogger(__name__)

EARLY = timedelta(seconds=30)
"""How long before its end a credential is renewed: a request in flight must not outlive it, nor clocks that differ."""


class CredentialProvider:
    """The current credential, renewed before it expires and after a 401; concurrent requests share one renewal."""

    def __init__(self, source: Callable[[], Awaitable[Credential]], clock: Clock) -> None:
        """`source` gets it again each time: it reads the files again and runs the plugin again.

        Its `NoAccess` is raised to the one who asks for a credential when none is at hand.
        """
        self._source = source
        self._clock = clock
        self._credential: Credential | None = None
        self._renewal = asyncio.Lock()

    @classmethod
    def fixed(cls, url: str, *, token: str | None = None, clock: Clock) -> Self:
        """Access that never changes, for a server that trusts the address or a token."""
        credential = Credential(ApiServer(url), f"Bearer {token}" if token else None)

        async def same() -> Credential:
            return credential

        return cls(same, clock)

    async def credential(self) -> Credential:
        """A credential that holds for a while yet; the one at hand when no other can be got."""
        async with self._renewal:
            if self._credential is None:
                self._credential = await self._source()
            elif self._ends_soon(self._credential):
                try:
                    self._credential = await self._source()
                except NoAccess as error:
                    # It may hold for the rest of its time; should it not, the server says 401.
                    log.warning("%s", error)
            return self._credential

    async def renewed(self, refused: Credential) -> Credential:
        """Another one, after the server did not take `refused`; got once, however many requests were refused."""
        async with self._renewal:
            if self._credential is None or self._credential is refused:
                self._credential = await self._source()
            return self._credential

    def _ends_soon(self, credential: Credential) -> bool:
        return credential.good_until is not None and credential.good_until - EARLY <= self._clock.now()


REREAD = timedelta(minutes=1) + EARLY
"""How long a token from a file is used: client-go reads it again each minute, since the kubelet rotates it in place."""

PLUGIN_SECONDS = 60.0
"""Plugins ask a cloud, for seconds; the official client would wait for ever, and every request with it."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BROKEN = (BrokenKubeconfig, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What comes of a file that is not as it should be, here and in the official client, which checks little."""

OTHER_FILE = "set KUBECONFIG, or give --kubeconfig FILE"

SECRET = re.compile(
    r"""(?<![^\s'"])(?!/)(?=[^\s'"]*\d)(?=[^\s'"]*[A-Z])(?=[^\s'"]*[a-z])[^\s'"]{20,}|(?=[^\s'"/]*\d)[^\s'"/]{20,}"""
)
"""What a token or key looks like in a plugin's complaint: a long word with digits in it; paths should stay."""


def credential_provider(context: str | None, *, clock: Clock, kubeconfig: str | None = None) -> CredentialProvider:
    """The credentials of a context; nothing is read before the first request.

    `kubeconfig` overrules `KUBECONFIG`, and like it may name several files.
    """

    async def read() -> Credential:
        files = _files(kubeconfig)
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                return await call_in_thread(_read, context, files, clock.now())
        except TimeoutError:
            raise NoAccess(
                f"the plugin of context {context or 'in use'} gave nothing in {PLUGIN_SECONDS:g} s",
                hint="run it by hand: does it wait for a login?",
            ) from None

    return CredentialProvider(read, clock)


def namespace_of(context: str | None, *, kubeconfig: str | None = None) -> str:
    """The namespace that a context names, or that our pod is in; `default` when neither says.

    Raises:
        KubeconfigWrong: when there is no such context.
    """
    files = _files(kubeconfig)
    if files is None:
        path = SERVICE_ACCOUNT / "namespace"
        return path.read_text().strip() if path.exists() else "default"
    try:
        return _context(_merged(files), context, files).namespace or "default"
    except BROKEN as error:
        raise _no_access(context, files, error) from None


def require_context(context: str | None) -> None:
    """Be sure, before anybody is asked, that the kubeconfig has that context, or a current one, or that this is a pod.

    Raises:
        KubeconfigWrong: it has not; names those that it has.
    """
    files = _files(None)
    if files is None:
        if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise KubeconfigWrong("there is no kubeconfig, and this is no pod", hint=OTHER_FILE)
        return
    try:
        _context(_merged(files), context, files)
    except BrokenKubeconfig as error:
        raise KubeconfigWrong(f"the kubeconfig cannot be used: {files}: {error}", hint=OTHER_FILE) from None


def _files(kubeconfig: str | None) -> str | None:
    """As `KUBECONFIG` says them; None when there is none, as in a pod."""
    # The official client reads the variable when it is imported, which may be long before.
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        return path
    usual = Path("~/.kube/config").expanduser()
    return str(usual) if usual.exists() else None


def _read(context: str | None, files: str | None, now: datetime) -> Credential:
    try:
        if files is None:
            if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
                raise KubeconfigWrong("there is no kubeconfig, and this is no pod", hint=OTHER_FILE)
            return service_account_credential(SERVICE_ACCOUNT, os.environ, good_until=now + REREAD)
        found = _context(_merged(files), context, files)
        if found.needs_plugin:
            return _by_plugin(files, found.name)
        return credential_of(found, good_until=now + REREAD if "tokenFile" in found.user else None)
    except BROKEN as error:
        # Without its chain: the parser's errors hold what the plugin printed.
        raise _no_access(context, files, error) from None


def _by_plugin(files: str, context: str) -> Credential:
    try:
        from rollouts.adapters.kube.plugin_credentials import plugin_credential
    except ModuleNotFoundError as error:
        raise NoAccess(
            f"context {context} has its credentials from a plugin, which needs the package kubernetes",
            hint=f"run: {install_command('kubernetes')}; or give its user a token or a certificate",
            detail=str(error),
        ) from None
    return plugin_credential(files, context)


def _merged(files: str) -> Kubeconfig:
    try:
        found = read_kubeconfig(files)
    except BrokenKubeconfig as error:
        raise KubeconfigWrong(f"the kubeconfig cannot be used: {error}", hint=OTHER_FILE) from None
    if found is None:
        raise KubeconfigWrong(f"there is no kubeconfig at {files}", hint=OTHER_FILE)
    return found


def _context(found: Kubeconfig, name: str | None, files: str) -> KubeContext:
    """The context of that name, or the current one."""
    wanted = name or found.current
    if wanted is None or wanted not in found.contexts:
        names = ", ".join(sorted(found.contexts)) or "none"
        if wanted is None:
            raise KubeconfigWrong(f"{files} has no current context", hint=f"choose one with --context: {names}")
        raise KubeconfigWrong(f"no context {wanted} in {files}", hint=f"it has {names}")
    return found.context(wanted)


def _no_access(context: str | None, files: str | None, error: Exception) -> NoAccess:
    """What went wrong, without what may be a secret in it."""
    where = f"context {context or 'in use'} of {files}" if files else "the service account of this pod"
    why = SECRET.sub("***", str(error)) if isinstance(error, BrokenKubeconfig | OSError) else type(error).__name__
    return NoAccess(
        f"no credentials from {where}: {' '.join(why.split())}",
        hint="try `kubectl auth whoami` with the same context",
    )
