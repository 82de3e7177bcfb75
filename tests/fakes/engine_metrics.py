"""An engine's `/metrics` as vLLM's: three histograms, classic in text, native in protobuf when Prometheus asks."""

from __future__ import annotations

import math
import struct
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gates.scraped.conventions import HISTOGRAMS, PROCESS_START
from gates.spec import LatencyMetric

EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SCHEMA = 5
"""32 buckets for each doubling: finer than the grid of the gates."""
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


class EngineMetrics(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, native: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.native = native
        self.times: dict[LatencyMetric, list[float]] = {}
        self.restart()

    def restart(self) -> None:
        """A new process at the old address."""
        self.started = time.time()
        self.times = {metric: [] for metric in LatencyMetric}

    def observe(self, ttft: float, itl: float, e2e: float) -> None:
        for metric, seconds in zip(LatencyMetric, (ttft, itl, e2e), strict=True):
            self.times[metric].append(seconds)

    def text(self) -> bytes:
        lines = [f"# TYPE {PROCESS_START} gauge", f"{PROCESS_START} {self.started!r}"]
        for metric, name in HISTOGRAMS.items():
            times = self.times[metric]
            lines.append(f"# TYPE {name} histogram")
            for edge in EDGES:
                lines.append(f'{name}_bucket{{model_name="m",le="{edge}"}} {sum(t <= edge for t in times)}')
            lines.append(f'{name}_bucket{{model_name="m",le="+Inf"}} {len(times)}')
            lines += [f'{name}_sum{{model_name="m"}} {sum(times)}', f'{name}_count{{model_name="m"}} {len(times)}']
        return "\n".join([*lines, ""]).encode()

    def protobuf(self) -> bytes:
        start = _family(PROCESS_START, 1, _message(2, _double(1, self.started)))
        return b"".join([start, *(_family(name, 4, _histogram(self.times[m])) for m, name in HISTOGRAMS.items())])


class _Handler(BaseHTTPRequestHandler):
    server: EngineMetrics

    def do_GET(self) -> None:
        native = self.server.native and "protobuf" in self.headers.get("accept", "")
        body = self.server.protobuf() if native else self.server.text()
        self.send_response(200)
        self.send_header("content-type", PROTOBUF if native else "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def engine_metrics(*, native: bool = False) -> Iterator[EngineMetrics]:
    """Serve on a free loopback port."""
    server = EngineMetrics(native=native)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _histogram(times: Sequence[float]) -> bytes:
    """io.prometheus.client.Histogram with one span over everything from the lowest bucket to the highest."""
    filled = Counter(math.ceil(math.log2(seconds) * 2**SCHEMA) for seconds in times)
    fields = [_integer(1, len(times)), _double(2, sum(times)), _integer(5, _zigzag(SCHEMA)), _double(6, 1e-9)]
    if filled:
        low, high = min(filled), max(filled)
        # A bucket's index counts from the one that ends at 1 second, which is number 0.
        fields.append(_message(12, _integer(1, _zigzag(low)) + _integer(2, high - low + 1)))
        counts = [filled[index] for index in range(low, high + 1)]
        fields += [_integer(13, _zigzag(now - before)) for before, now in zip([0, *counts], counts, strict=False)]
    # Native and classic at once, as programs in transition do.
    below = sorted(times)
    fields += [_message(3, _integer(1, bisect_left(below, edge + 1e-12)) + _double(2, edge)) for edge in EDGES]
    return _message(7, b"".join(fields))


def _family(name: str, kind: int, metric: bytes) -> bytes:
    label = _message(1, _text(1, "model_name") + _text(2, "m"))
    family = _text(1, name) + _integer(3, kind) + _message(4, label + metric)
    return _varint(len(family)) + family


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
