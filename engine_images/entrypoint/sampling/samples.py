"""A sampled share of users' requests and answers, kept for a delivery that asks for it: redacted, sealed, short-lived.

Nothing is kept unless the file of `--samples` is there, and nothing after the moment that it names: a delivery that
died leaves no engine that goes on keeping. The file holds a public key. What is kept is sealed with it at once, so that
neither this process nor a reader of its memory or its answers can open it again; the private key is the delivery's,
and nowhere but in its memory. Samples are never written to a disk.

    POST /tidegate/samples       with the delivery's token: what is kept, which is forgotten here with the answer;
                                 404 while nothing is asked for, 403 with another token
    POST /tidegate/samples/end   with the same: all is forgotten, and nothing is kept for that key any more

The token is a header of its own, or the bearer of `Authorization`, which the API server of a cluster does not pass on.

Users wait for none of it: parts of an answer are noted while they pass, and what costs time happens after the last one,
in a thread. A sample that would not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..answers import Scope, Send, reply
from .exchange import Capture, read_exchange
from .redaction import Rule, redaction

SAMPLES_PATH = "/tidegate/samples"
END_PATH = f"{SAMPLES_PATH}/end"
TOKEN_HEADER = "x-tidegate-token"
SAMPLED = frozenset({"/v1/chat/completions", "/v1/completions"})
REQUEST_ID = b"x-request-id"
"""Given by proxies to every request, the same to its mirrored copy."""
POLL_SECONDS = 1.0
MOST_WAITING = 64
"""Whole answers that wait to be sealed."""
INFO = b"tidegate samples 1"
"""Binds derived keys to this use."""

KEPT, TAKEN, DROPPED, EXPIRED, TOO_LARGE, UNREADABLE = "kept", "taken", "dropped", "expired", "too_large", "unreadable"


@dataclass(frozen=True)
class SampleSettings:
    """What the delivery asks for: the file's fields."""

    public_key: str
    """X25519, 32 bytes in base64."""
    token_sha256: str
    """Of the token that takes samples, in hexadecimal: who reads the file cannot take them."""
    until: float
    """Unix time in seconds at which keeping ends, unless the file is written again."""
    shares: Mapping[str, float]
    """Of requests that are kept, by the model version that answers them; of others none are."""
    salt: str
    """Of which requests are drawn: nobody can write a request that is surely kept, or surely not."""
    redact: tuple[str, ...]
    words: tuple[str, ...] = ()
    max_entries: int = 500
    max_bytes: int = 8 << 20
    keep_seconds: float = 120.0

    @classmethod
    def from_text(cls, text: bytes) -> SampleSettings:
        """Read a file.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error


class SampleBuffer:
    """Sealed samples, bounded in number, size and age; the oldest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.counts: Counter[str] = Counter()
        """What became of samples, since the process began."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, sealed: bytes, settings: SampleSettings) -> None:
        """Keep it, in the place of the oldest where there is no room."""
        self.expire()
        self._held.append((self._clock() + settings.keep_seconds, sealed))
        self._bytes += len(sealed)
        self.counts[KEPT] += 1
        while self._held and (len(self._held) > settings.max_entries or self._bytes > settings.max_bytes):
            self._drop_oldest(DROPPED)

    def expire(self) -> None:
        """Forget what nobody took in time."""
        while self._held and self._held[0][0] <= self._clock():
            self._drop_oldest(EXPIRED)

    def take(self) -> list[bytes]:
        """All of it, which is forgotten here."""
        self.expire()
        found = [sealed for _, sealed in self._held]
        self.counts[TAKEN] += len(found)
        self._held.clear()
        self._bytes = 0
        return found

    def clear(self) -> None:
        """Forget all of it."""
        while self._held:
            self._drop_oldest(EXPIRED)

    def _drop_oldest(self, why: str) -> None:
        _, sealed = self._held.popleft()
        self._bytes -= len(sealed)
        self.counts[why] += 1


def seal(content: bytes, public_key: bytes) -> bytes:
    """Encrypt so that only the holder of the private key can read: ephemeral X25519, HKDF-SHA256, AES-256-GCM.

    The ephemeral public key (32 bytes), the nonce (12) and the ciphertext, one after the other.
    """
    # Here: an engine that keeps nothing needs no cryptography.
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    ephemeral = X25519PrivateKey.generate()
    own = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public_key))
    key = HKDF(algorithm=SHA256(), length=32, salt=own + public_key, info=INFO).derive(shared)
    nonce = os.urandom(12)
    return own + nonce + AESGCM(key).encrypt(nonce, content, INFO)


class Samples:
    """What this engine keeps of its users' requests."""

    def __init__(self, file: Path | None, version: str, *, clock: Callable[[], float] = time.time) -> None:
        """`file` is where a delivery says what it asks for; None keeps nothing, ever."""
        self._file = file
        self._version = version
        self._clock = clock
        self._buffer = SampleBuffer()
        self._text = b""
        self._settings: SampleSettings | None = None
        self._ended = ""
        """The public key for which nothing is kept any more, whatever the file says by now."""
        self._redact: Rule = str
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="samples")
        self._waiting = 0

    async def follow(self) -> None:
        """Do what the file says, from its coming to its going."""
        while self._file is not None:
            self.look()
            await asyncio.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Read the file again, and forget what is too old."""
        assert self._file is not None, "without a file nothing is looked at"
        try:
            text = self._file.read_bytes()
            if text != self._text:
                self._begin(SampleSettings.from_text(text))
            self._text = text
        except (OSError, ValueError, KeyError):
            # None there, or none that can be read: keeping needs a plain word.
            self._settings, self._text = None, b""
        if not self.on:
            self._buffer.clear()
        self._buffer.expire()

    def _begin(self, settings: SampleSettings) -> None:
        if settings.public_key == self._ended:
            return
        if self._settings is None or settings.public_key != self._settings.public_key:
            # Sealed for somebody who is gone.
            self._buffer.clear()
        self._redact = redaction(settings.redact, settings.words)
        self._settings = settings

    @property
    def on(self) -> bool:
        """Whether anything is kept now."""
        return self._settings is not None and self._clock() < self._settings.until

    def begin(self, scope: Scope) -> Capture | None:
        """Begin to note a request; None for one that is not in the sample."""
        settings = self._settings
        if settings is None or not self.on or scope["method"] != "POST" or scope["path"] not in SAMPLED:
            return None
        name = next((value for key, value in scope["headers"] if key == REQUEST_ID), b"")
        drawn = hmac.new(settings.salt.encode(), name, hashlib.sha256).digest()
        share = settings.shares.get(self._version, 0.0)
        # Without a name no proxy passed it on: it is a question of the delivery's own.
        if not name or int.from_bytes(drawn[:8], "big") >= share * 2**64:
            return None
        return Capture(settings.public_key, drawn.hex()[:32])

    def end(self, capture: Capture) -> None:
        """Seal what was noted, once nobody waits for it any more."""
        if capture.too_large or self._waiting >= MOST_WAITING:
            self._buffer.counts[TOO_LARGE if capture.too_large else DROPPED] += 1
            return
        self._waiting += 1
        seconds = time.monotonic() - capture.began
        ready = asyncio.get_running_loop().run_in_executor(self._thread, self._sealed, capture, seconds)
        ready.add_done_callback(lambda done: self._keep(capture, done))

    def _keep(self, capture: Capture, done: asyncio.Future[bytes | None]) -> None:
        self._waiting -= 1
        sealed = None if done.cancelled() or done.exception() else done.result()
        if sealed is None:
            self._buffer.counts[UNREADABLE] += 1
        # Not of one that ended meanwhile, nor for another who asks now.
        elif self.on and self._settings and self._settings.public_key == capture.public_key:
            self._buffer.add(sealed, self._settings)

    def _sealed(self, capture: Capture, seconds: float) -> bytes | None:
        # One that failed, too: the copy of a request that stable answered tells something of the canary.
        asked, answered = b"".join(capture.request), b"".join(capture.answer)
        read = read_exchange(asked, answered, streams=capture.streams, failed=capture.status != 200)
        if read is None:
            return None
        sample = {
            "at": self._clock(),
            "pair": capture.pair,
            "prompt": self._redact(read.prompt),
            "answer": self._redact(read.answer),
            "finish_reason": read.finish_reason,
            "tokens": read.tokens,
            "whole": capture.whole and read.ended,
            "ttft": None if capture.first is None else capture.first - capture.began,
            "seconds": seconds,
        }
        return seal(json.dumps(sample).encode(), base64.b64decode(capture.public_key))

    async def serve(self, scope: Scope, send: Send) -> None:
        """Give what is kept to the one who has the token, or forget it."""
        settings = self._settings
        if settings is None or not self.on or scope["method"] != "POST":
            await reply(send, 404, {"error": "no samples are kept"})
            return
        if not hmac.compare_digest(hashlib.sha256(_token(scope)).hexdigest(), settings.token_sha256):
            await reply(send, 403, {"error": "another token takes these samples"})
            return
        if scope["path"].rstrip("/") == END_PATH:
            self._buffer.clear()
            self._settings, self._ended = None, settings.public_key
            await reply(send, 200, {"held": len(self._buffer)})
            return
        held = [base64.b64encode(sealed).decode() for sealed in self._buffer.take()]
        engine = {"version": self._version, "host": socket.gethostname(), "process": os.getpid()}
        await reply(send, 200, {**engine, "counts": dict(self._buffer.counts), "samples": held})

    def status(self) -> dict[str, object]:
        """For people: whether samples are kept, how many, and what became of them."""
        return {"on": self.on, "held": len(self._buffer), **self._buffer.counts}


def _token(scope: Scope) -> bytes:
    said = dict(scope["headers"])
    return bytes(said.get(TOKEN_HEADER.encode()) or said.get(b"authorization", b"").removeprefix(b"Bearer "))
