"""One repository of a registry, by the distribution protocol, over python-dxf; with the credentials of `docker login`.

All that is sent is named by its digest: to send it again does no harm. Errors are of two kinds: the registry is away or
overloaded (`RegistryUnavailable`: the same request may well succeed later), or it answered and meant it
(`RegistryRefused`). The libraries' own messages are not repeated: they may quote headers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dxf import DXF, DXFBase
from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFMountFailed, DXFUnauthorizedError
from pydantic import SecretStr
from requests import ConnectionError as NoConnection
from requests import HTTPError, RequestException, Response
from requests.exceptions import ConnectTimeout, ReadTimeout, SSLError

from engine_images.errors import BrokenImage, NotThere, RegistryRefused, RegistryUnavailable
from engine_images.oci.model import INDEXES, MANIFESTS, Descriptor, documents
from engine_images.oci.reference import HUB, ImageReference
from engine_images.oci.signatures import DOCUMENT_LIMIT, PAYLOAD, SIGNATURE, Signed, signature_tag
from tidegate.core.model import Value
from tidegate.core.text import foreign, json_of

AWAY = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same request may well succeed."""

REASONS = (
    (SSLError, "its certificate is not trusted, or it speaks no TLS"),
    (ConnectTimeout, "no connection"),
    (ReadTimeout, "silence"),
    (NoConnection, "no connection, or it broke off"),
)


def _answered(error: HTTPError, where: str, what: str, login: str) -> RegistryRefused | RegistryUnavailable:
    status = error.response.status_code if error.response is not None else 0
    if status in AWAY:
        return RegistryUnavailable(
            f"{where} answers {status} for {what}{_reason(error.response)}",
            hint="try again later, or ask who runs the registry",
        )
    if status == 403:
        return RegistryRefused(f"{where}: not allowed", hint=login)
    if status == 404:
        return NotThere(f"{where} has no {what}", hint="check the name and the tag, or push it first")
    return RegistryRefused(
        f"{where} answers {status} for {what}{_reason(error.response)}", hint="ask who runs the registry"
    )


def _reason(response: Response | None) -> str:
    """What the registry says in its own format; nothing of pages that others put in front of it."""
    try:
        first = json_of(response.content)["errors"][0] if response is not None else {}
        said = f"{first['code']}: {first.get('message', '')}".strip(": ")
        detail = first.get("detail")
        return f" ({said}{f', {detail}' if isinstance(detail, str) else ''})"
    except (ValueError, KeyError, IndexError, TypeError):
        return ""


CONFIG_VARIABLE = "DOCKER_CONFIG"
HUB_KEY = "https://index.docker.io/v1/"
"""What docker calls its own registry in this file."""
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
    key = HUB_KEY if registry == HUB else registry
    # What is wrong in a file of secrets is not quoted.
    with foreign(lambda _: RegistryRefused(f"{config} is not what `docker login` writes", hint="run: docker login")):
        settings = json.loads(config.read_bytes())
        helper = settings.get("credHelpers", {}).get(key) or settings.get("credsStore")
        if helper:
            return _ask(str(helper), key)
        entry = settings.get("auths", {}).get(key) or settings.get("auths", {}).get(f"https://{key}")
        return _decode(entry, registry, config) if entry else None


def _decode(entry: dict[str, Any], registry: str, config: Path) -> Credentials | None:
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
        raise RegistryRefused(
            f"`{program}` gives no credentials for {key}: exit code {done.returncode}",
            hint="log in with it again",
        )
    try:
        answer = json.loads(done.stdout)
        username, password = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryRefused(
            f"`{program}` answers with something else than credentials", hint="log in with it again"
        ) from None
    return Credentials(username=username, password=SecretStr(password))


PIECE = 1 << 20
"""How much of a blob is in memory at once."""
SIGNATURES_LIMIT = 64
"""Signatures of one image that are looked at; the one who may write to a registry may hang thousands on it."""
SILENCE_SECONDS = 120.0
"""A registry may say nothing for this long: it computes the digest of a large blob before it answers."""


@dataclass(frozen=True)
class RegistryAccess:
    """How to speak to a registry."""

    credentials: Credentials | None = None
    insecure: bool = False
    """Plain http also beyond this machine. Passwords are not sent over it."""


@dataclass(frozen=True)
class Body:
    """A blob on its way into a registry: of known length, read again when need be, proven while it is read."""

    descriptor: Descriptor
    pieces: Callable[[], Iterable[bytes]]
    """Begins to read, from the start."""
    sent: Callable[[int], None] = field(default=lambda _: None)
    """Told how many bytes have gone so far."""

    def __len__(self) -> int:
        return self.descriptor.size

    def __iter__(self) -> Iterator[bytes]:
        seen, size = hashlib.sha256(), 0
        for piece in self.pieces():
            seen.update(piece)
            size += len(piece)
            # The last piece of something else must not arrive: the registry would keep it.
            if size >= len(self) and (size > len(self) or f"sha256:{seen.hexdigest()}" != self.descriptor.digest):
                raise BrokenImage(
                    f"{self.descriptor.digest} is not what its name says: it was changed", hint="push or pull it again"
                )
            yield piece
            self.sent(size)
        if size < len(self):
            raise BrokenImage(
                f"{self.descriptor.digest} has {size:,} bytes; expected {len(self):,}", hint="push or pull it again"
            )


class Repository:
    """A repository, spoken to over one connection while the context lasts."""

    def __init__(self, reference: ImageReference, access: RegistryAccess) -> None:
        """Opens nothing yet."""
        self.reference = reference
        self._access = access
        self._client = _Client(
            reference.address,
            reference.repository,
            auth=self._authenticate,
            insecure=access.insecure or reference.on_loopback,
            timeout=SILENCE_SECONDS,
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._client)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def has(self, digest: str) -> bool:
        """Whether a blob is there."""
        try:
            with self._errors(f"blob {digest}"):
                self._client.blob_size(digest)
        except NotThere:
            return False
        return True

    def send(self, body: Body) -> None:
        """Upload a blob. The registry keeps all of it or nothing.

        Raises:
            BrokenImage: what was read is not what the descriptor says; nothing is kept.
        """
        with self._errors(f"blob {body.descriptor.digest}"):
            self._client.push_blob(data=body, digest=body.descriptor.digest, check_exists=False)

    def mount(self, source: str, digest: str) -> bool:
        """Let the registry take a blob from its own repository `source`; False when it will not."""
        with self._errors(f"blob {digest} of {source}"):
            try:
                self._client.mount_blob(source, digest)
            except (DXFMountFailed, DXFUnauthorizedError):
                return False
            except HTTPError as error:
                if error.response is not None and error.response.status_code in AWAY:
                    raise
                return False
            return True

    def blob(self, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob, piece by piece, and not one piece past the size that its descriptor promises.

        Raises:
            BrokenImage: it is longer; or, at its end, not what its name says.
        """
        seen = 0
        with self._errors(f"blob {descriptor.digest}"):
            for piece in self._client.blob_pieces(descriptor.digest):
                seen += len(piece)
                if seen > descriptor.size:
                    raise BrokenImage(
                        f"{descriptor.digest} has more than the {descriptor.size:,} bytes it should have",
                        hint="push or pull it again",
                    )
                yield piece

    def content(self, descriptor: Descriptor) -> bytes:
        """See Images."""
        if descriptor.media_type in {*MANIFESTS, *INDEXES}:
            return self.manifest(descriptor.digest)[1]
        return b"".join(self.blob(descriptor))

    def signatures(self, digest: str) -> tuple[Signed, ...]:
        """In cosign's format; none when there are none.

        Raises:
            BrokenImage: they cannot be read.
        """
        try:
            _, content = self.manifest(signature_tag(digest))
        except NotThere:
            return ()
        with documents():
            layers = [Descriptor.read(layer) for layer in json.loads(content).get("layers", ())]
        found = [layer for layer in layers if layer.media_type == PAYLOAD and SIGNATURE in layer.annotations]
        if any(layer.size > DOCUMENT_LIMIT for layer in found) or len(found) > SIGNATURES_LIMIT:
            raise BrokenImage(
                f"the signatures of {digest} are larger or more than signatures are",
                hint="remove what other programs attached to the image",
            )
        return tuple((self.content(layer), layer.annotations[SIGNATURE].encode()) for layer in found)

    def manifest(self, name: str = "") -> tuple[Descriptor, bytes]:
        """A manifest or index by tag or digest, and its bytes, proven where the name is a digest.

        That of the repository's reference where no name is given.
        """
        name = name or self.reference.name
        with self._errors(f"image {name}"):
            _, response = self._client.get_manifest_and_response(name)
        content = response.content
        found = Descriptor.of(content, response.headers.get("Content-Type", "").split(";")[0])
        if found.media_type not in (*MANIFESTS, *INDEXES):
            raise RegistryRefused(
                f"{self.reference} is {found.media_type or 'of no type'}; expected an image",
                hint="name an image of one platform",
            )
        if name.startswith("sha256:") and found.digest != name:
            raise RegistryRefused(
                f"{self.reference.registry} answers {name} with {found.digest}",
                hint="ask who runs the registry: it or a proxy gives other content",
            )
        return found, content

    def publish(self, name: str, manifest: bytes) -> None:
        """Put a manifest under a tag or its digest; the registry checks that all it names is there."""
        with self._errors(f"image {name}"):
            self._client.set_manifest(name, manifest.decode())

    def _authenticate(self, client: DXFBase, response: Response) -> None:
        known, wants_password = self._access.credentials, _wants_password(response)
        if known is None and not wants_password:
            client.authenticate(response=response)
        elif known is not None and wants_password and self.reference.on_loopback and isinstance(client, _Client):
            client.send_password(known)
        elif known is not None:
            client.authenticate(known.username, known.password.get_secret_value(), response=response)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn errors of python-dxf and requests into ours; `what` was asked for, such as `blob sha256:...`.

        Raises:
            BrokenImage: content is not what its digest says.
            RegistryRefused: it answered and meant it.
            RegistryUnavailable: it did not answer, or was not able to.
        """
        reference, known = self.reference, self._access.credentials
        where = f"{reference.registry}/{reference.repository}"
        login = f"run: docker login {reference.registry}"
        try:
            yield
        except DXFAuthInsecureError:
            raise RegistryRefused(
                f"{reference.registry} wants credentials, which are not sent over plain http",
                hint="use https; --insecure never sends a password",
            ) from None
        except DXFUnauthorizedError:
            said = f"user `{known.username}` or the password is not accepted" if known else "credentials are wanted"
            raise RegistryRefused(f"{where}: {said}", hint=login) from None
        except DXFDigestMismatchError:
            raise BrokenImage(
                f"{where} gives something else for {what}: it was changed", hint="push or pull it again"
            ) from None
        except HTTPError as error:
            raise _answered(error, where, what, login) from None
        except RequestException as error:
            reason = next((words for kind, words in REASONS if isinstance(error, kind)), type(error).__name__)
            raise RegistryUnavailable(
                f"{reference.registry} does not answer: {reason}",
                hint="check the address, and that it can be reached from here",
            ) from None


class _Client(DXF):
    """What python-dxf leaves out."""

    def send_password(self, credentials: Credentials) -> None:
        """Over plain http too, which python-dxf never does: on the loopback nobody listens in."""
        pair = f"{credentials.username}:{credentials.password.get_secret_value()}"
        self._headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def blob_pieces(self, digest: str) -> Iterator[bytes]:
        """`pull_blob` with one type of answer."""
        pieces = self.pull_blob(digest, chunk_size=PIECE)
        if isinstance(pieces, tuple):
            raise TypeError("asked for the pieces only")
        yield from pieces


def _wants_password(response: Response) -> bool:
    """As opposed to a token, which a registry gives to anyone for what is public."""
    return not response.headers.get("WWW-Authenticate", "").lower().startswith("bearer")
