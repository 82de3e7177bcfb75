"""The text of a secret, from where a spec says that it is; and texts without the secrets in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core.access.model import CredentialSource
from tidegate.core.errors import OutsideError
from tidegate.core.files import Unreadable, read_text

FOLDER = "TIDEGATE_SECRETS"
"""The variable that says where Secrets are mounted: each a folder with its name, and a file for each of its keys."""

MOST_BYTES = 1024 * 1024
"""Of a file; what a Secret holds."""

SHORTEST = 4
"""Characters of a text that is taken for a secret where others' words are cleaned: `a` is everywhere."""


class CredentialMissing(OutsideError):
    """A secret is not where the spec says that it is."""


@dataclass(frozen=True)
class SecretStore:
    """The places of this process. Nothing is kept: what is asked for again is read again."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def place_of(self, source: CredentialSource) -> Path | None:
        """The file in which it is; None for a variable."""
        folder = self.environment.get(FOLDER)
        if source.secret and folder:
            return Path(folder) / source.secret.name / source.secret.key
        return source.file

    def where(self, source: CredentialSource) -> str:
        """For people: `the variable X`, `the file /x`."""
        path = self.place_of(source)
        if path is not None:
            return f"the file {path}"
        return f"the variable {source.env}" if source.env else f"the Secret {_named(source)}"

    def text(self, source: CredentialSource) -> str:
        """The secret, without spaces and line ends around it.

        Raises:
            CredentialMissing: it is not there, or is empty.
        """
        path = self.place_of(source)
        if path is not None:
            return self._of_file(path)
        if source.env is None:
            raise CredentialMissing(
                f"the credential is in the Secret {_named(source)}, which is not mounted here",
                hint=f"name an `env` or a `file` next to `secret`, or the folder of mounted Secrets in {FOLDER}",
            )
        found = self.environment.get(source.env, "").strip()
        if not found:
            raise CredentialMissing(
                f"the environment variable {source.env}, which holds a credential, is not set", hint="set it"
            )
        return found

    def _of_file(self, path: Path) -> str:
        try:
            # A device or a pipe would be waited for.
            found = read_text(path, most_bytes=MOST_BYTES).strip() if path.is_file() or not path.exists() else ""
        except Unreadable as error:
            raise CredentialMissing(
                f"the credential in the file {path} cannot be read: {error}", hint="check its path and its permissions"
            ) from error
        if not found:
            raise CredentialMissing(
                f"the file {path}, which holds a credential, is empty or no file", hint="write the credential into it"
            )
        return found


def _named(source: CredentialSource) -> str:
    return f"{source.secret.name}, key {source.secret.key}" if source.secret else ""


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """`text` with every one of `secrets` replaced: a server may say in its answer what it was sent."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, "***")
    return text
