"""The name of an image in a registry: `registry.example:5000/team/engine:7@sha256:...`. Pure."""

from __future__ import annotations

import re
from typing import Self

from engine_images.errors import BadReference
from tidegate.core.model import Value
from tidegate.core.text import is_loopback

HUB = "docker.io"
HUB_ADDRESS = "registry-1.docker.io"
"""Docker Hub answers elsewhere than it is named."""

_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")


class ImageReference(Value):
    """Where an image is, or is to be."""

    registry: str
    """Host, and port when it is not the usual one."""
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a reference as docker writes it; without a registry it means Docker Hub.

        Raises:
            BadReference: it is none; the message says which part is wrong.
        """
        rest, _, digest = text.removeprefix("docker://").partition("@")
        head, slash, tail = rest.partition("/")
        is_host = "." in head or ":" in head or head == "localhost"
        registry, path = (head, tail) if slash and is_host else (HUB, rest)
        repository, _, tag = path.partition(":")
        wrong = (
            ("registry", registry, _REGISTRY),
            ("repository", repository, _REPOSITORY),
            ("tag", tag or None, _TAG),
            ("digest", digest or None, _DIGEST),
        )
        for part, value, form in wrong:
            if value is not None and form.fullmatch(value) is None:
                raise BadReference(f"`{text}` is no image in a registry: {part} `{value}`", hint=FORM)
        return cls(registry=registry, repository=repository, tag=tag, digest=digest)

    @property
    def name(self) -> str:
        """What the repository knows the image by; the digest, where there is one, leaves no doubt."""
        return self.digest or self.tag or "latest"

    @property
    def address(self) -> str:
        """Where the registry answers."""
        return HUB_ADDRESS if self.registry == HUB else self.registry

    @property
    def on_loopback(self) -> bool:
        """Whether the registry is this machine: nobody can listen in."""
        return is_loopback(re.sub(r":[0-9]+$", "", self.registry).strip("[]"))

    def at(self, digest: str) -> ImageReference:
        """The same image by its digest alone."""
        return self.model_copy(update={"digest": digest, "tag": ""})

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


FORM = "write REGISTRY/REPOSITORY:TAG, such as registry.example/team/support-llm:7"
