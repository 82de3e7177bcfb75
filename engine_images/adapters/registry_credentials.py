"""Credentials for registries, from where `docker login` keeps them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from engine_images.errors import RegistryRefused
from engine_images.oci.reference import HUB
from tidegate.core.model import Value

CONFIG_VARIABLE = "DOCKER_CONFIG"
HUB_KEY = "https://index.docker.io/v1/"
"""What docker calls its own registry in this file."""
TOKEN_USER = "<token>"
"""A credential helper says so when it has a token where a password belongs."""
HELPER_SECONDS = 60


class Credentials(Value):
    """A user of a registry. Printed, the password is stars."""

    username: str
    password: SecretStr


def docker_config() -> Path:
    """The file that `docker login` writes."""
    return Path(os.environ.get(CONFIG_VARIABLE) or Path.home() / ".docker") / "config.json"


def find_credentials(registry: str, config: Path) -> Credentials | None:
    """What docker would use for `registry`; None when it knows nothing.

    Raises:
        RegistryRefused: the file or its helper program gives something that cannot be used.
    """
    if not config.is_file():
        return None
    settings = _read(config)
    key = HUB_KEY if registry == HUB else registry
    helper = settings.get("credHelpers", {}).get(key) or settings.get("credsStore")
    if helper:
        return _ask(str(helper), key)
    entry = settings.get("auths", {}).get(key) or settings.get("auths", {}).get(f"https://{key}")
    return _decode(entry, registry, config) if entry else None


def _read(config: Path) -> dict[str, Any]:
    try:
        settings = json.loads(config.read_bytes())
    except ValueError:
        # What is wrong in a file of secrets is not quoted.
        settings = None
    if not isinstance(settings, dict):
        raise RegistryRefused(f"{config} is not what `docker login` writes")
    return settings


def _decode(entry: dict[str, Any], registry: str, config: Path) -> Credentials | None:
    if entry.get("identitytoken"):
        raise RegistryRefused(
            f"{config} has an identity token for {registry}, which tidegate cannot use",
            hint="give --username and --password-stdin",
        )
    if "auth" not in entry:
        return None
    try:
        username, colon, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, TypeError):
        colon = ""
    if not colon:
        raise RegistryRefused(f"{config} has no user and password for {registry}", hint=f"docker login {registry}")
    return Credentials(username=username, password=SecretStr(password))


def _ask(helper: str, key: str) -> Credentials | None:
    """By docker's protocol: the registry's name on stdin, JSON on stdout."""
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=key, capture_output=True, text=True, timeout=HELPER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryRefused(f"`{program}` does not answer: {type(error).__name__}", hint="is it on PATH?") from None
    if done.returncode != 0:
        if "not found" in done.stdout + done.stderr:
            return None
        raise RegistryRefused(f"`{program}` gives no credentials for {key}: exit code {done.returncode}")
    try:
        answer = json.loads(done.stdout)
        username, password = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryRefused(f"`{program}` answers with something else than credentials") from None
    if username == TOKEN_USER:
        raise RegistryRefused(f"`{program}` has an identity token for {key}, which tidegate cannot use")
    return Credentials(username=username, password=SecretStr(password))
