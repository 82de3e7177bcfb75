"""What the runs of field cases share. A run is `TIDEGATE=/path/.venv/bin/tidegate NN-name/run`; exit 0 when right.

It begins itself again with the Python next to TIDEGATE, which has PyYAML and, in a checkout, what the fakes need.
Nothing here knows how tidegate works inside.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

if "TIDEGATE" not in os.environ:
    sys.exit("set TIDEGATE to the path of the console script")
TIDEGATE = Path(os.environ["TIDEGATE"]).absolute()
_PYTHON = TIDEGATE.parent / "python"
if _PYTHON.exists() and not os.environ.get("FIELD_AGAIN"):
    os.environ["FIELD_AGAIN"] = "1"
    os.execv(_PYTHON, [str(_PYTHON), *sys.argv])

HERE = Path(sys.argv[0]).absolute().parent
_WRONG: list[str] = []


class Said:
    """What a command said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def all(self) -> str:
        return self.out + self.err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def yaml(self):
        import yaml

        return [each for each in yaml.safe_load_all(self.out) if each]


def folder() -> Path:
    """A folder of this run alone with a copy of the case's input."""
    found = Path(tempfile.mkdtemp(prefix="field-"))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    for each in HERE.iterdir():
        if each.name in {"run", "README.md", "__pycache__"}:
            continue
        (shutil.copytree if each.is_dir() else shutil.copy)(each, found / each.name)
    return found


def tidegate(*words: object, cwd: Path | None = None, stdin: str | None = None, seconds: int = 300, **env: str) -> Said:
    """Run the command."""
    whole = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "MLFLOW_TRACKING_URI": "", **env}
    for name in ("MLFLOW_TRACKING_URI", "FIELD_AGAIN"):
        if not whole.get(name) or name == "FIELD_AGAIN":
            whole.pop(name, None)
    done = subprocess.run(
        [str(TIDEGATE), *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=whole,
    )
    return Said(done)


def right(what: str, holds: object, seen: object = "") -> bool:
    """Note whether something holds."""
    print(
        ("ok     " if holds else "WRONG  ")
        + what
        + ("" if holds or seen == "" else f"\n         saw: {str(seen).strip()[:1500]}")
    )
    if not holds:
        _WRONG.append(what)
    return bool(holds)


def end() -> None:
    """Exit 0 when all of it held."""
    sys.exit(1 if _WRONG else 0)


# -- Prometheus -------------------------------------------------------------------------------------------------------


class Series:
    """One series: its labels with __name__, and its samples, rising in time."""

    def __init__(self, labels: dict[str, str], samples: list[tuple[float, float | str]]) -> None:
        self.labels, self.samples = labels, samples


def _matchers(text: str) -> list[tuple[str, str, str]]:
    """`a="1",b=~"2"` as triples; values are unescaped."""
    import re

    found = []
    for name, operator, value in re.findall(r'([A-Za-z_][\w.]*|"[^"]*")\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"', text):
        found.append((name.strip('"'), operator, value.replace('\\"', '"').replace("\\\\", "\\")))
    return found


def _fits(labels: dict[str, str], asked: list[tuple[str, str, str]]) -> bool:
    import re

    for name, operator, value in asked:
        got = labels.get(name, "")
        same = re.fullmatch(value, got) is not None if "~" in operator else got == value
        if same == operator.startswith("!"):
            return False
    return True


class Prometheus:
    """Answers `/api/v1/query` of selectors and of ranges, `name{...}` and `name{...}[30000ms]`, from its series.

    `answer(query, at)` may return a whole body (dict), or (status, text), in place of that. `extra` is put into each
    answer beside `status`, such as warnings.
    """

    def __init__(self, series=(), *, answer=None, extra=None, stale=False) -> None:
        self.series, self.answer, self.extra, self.asked = list(series), answer, extra or {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
                status, text, kind = outer.reply(parts.path, asked)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                asked = {key: values[0] for key, values in parse_qs(self.rfile.read(length).decode()).items()}
                status, text, kind = outer.reply(urlsplit(self.path).path, asked)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, asked: dict[str, str]) -> tuple[int, str, str]:
        if not path.endswith("/api/v1/query"):
            return 404, "not found", "text/plain"
        query, at = asked.get("query", ""), float(asked.get("time", time.time()))
        self.asked.append(query)
        if self.answer and (own := self.answer(query, at)) is not None:
            if isinstance(own, tuple):
                return own[0], own[1], "application/json"
            return 200, json.dumps(own), "application/json"
        return 200, json.dumps(self.evaluated(query, at)), "application/json"

    def evaluated(self, query: str, at: float) -> dict:
        import re

        match = re.fullmatch(r"\s*([A-Za-z_:][\w:]*)?\s*(?:\{(.*)\})?\s*(?:\[(\d+)ms\])?\s*", query, re.DOTALL)
        if not match:
            return {"status": "error", "errorType": "bad_data", "error": f"not known here: {query}"}
        asked = _matchers(match[2] or "") + ([("__name__", "=", match[1])] if match[1] else [])
        result = []
        span = int(match[3]) / 1000 if match[3] else None
        for each in self.series:
            if not _fits(each.labels, asked):
                continue
            if span is None:
                last = [sample for sample in each.samples if at - 300 < sample[0] <= at]
                if last:
                    result.append({"metric": each.labels, "value": [last[-1][0], _number(last[-1][1])]})
            else:
                values = [[t, _number(v)] for t, v in each.samples if at - span < t <= at]
                if values:
                    result.append({"metric": each.labels, "values": values})
        kind = "vector" if span is None else "matrix"
        return {"status": "success", "data": {"resultType": kind, "result": result}, **self.extra}


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value).is_integer() else repr(float(value))


EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
"""Of vLLM's time to first token."""


def scrapes(now: float, minutes: int, interval: int = 10) -> list[float]:
    """Times of scrapes until `now`."""
    count = minutes * 60 // interval
    return [now - interval * (count - index) for index in range(count + 1)]


def counter(times, each: float, *, begin: float = 0, noise: int = 0) -> list[tuple[float, float]]:
    """A counter that gains `each` a scrape; with `noise`, a whole number up to that more or less, the same each run."""
    value, found, state = begin, [], 12345
    for index, at in enumerate(times):
        if index:
            state = (1103515245 * state + 12345) % 2**31
            value += max(0, each + (state // 65536 % (2 * noise + 1) - noise if noise else 0))
        found.append((at, value))
    return found


def pod(
    arm: str,
    name: str,
    times,
    *,
    version: str,
    rate: float = 20,
    errors: float = 0,
    spread=(0.2, 0.6, 0.2),
    edges=EDGES,
    at_edge: int = 8,
    le=None,
    labels=None,
    status=("2xx", "5xx"),
    metric="vllm:time_to_first_token_seconds",
    engines=("",),
    counted="http_requests_total",
) -> list[Series]:
    """The series of one vLLM pod, under the labels that tidegate's own PodMonitor sets.

    `spread` are the shares of answers in the buckets from `at_edge` on.
    """
    le = le or (lambda edge: repr(float(edge)))
    base = {"region": "eu", "role": arm, "version": version, "pod": name, "instance": f"{name}:8000", "job": "engines"}
    base |= labels or {}
    found = [
        Series({"__name__": "up", **base}, [(at, 1) for at in times]),
        Series({"__name__": "process_start_time_seconds", **base}, [(at, times[0] - 30) for at in times]),
    ]
    http = {"__name__": counted, "method": "POST", "handler": "/v1/completions"}
    found.append(Series({**base, **http, "status": status[0]}, counter(times, rate - errors, noise=2)))
    if errors:
        found.append(Series({**base, **http, "status": status[1]}, counter(times, errors)))
    for engine in engines:
        own = {**base, "model_name": "chat", **({"engine": engine} if engine else {})}
        share = (rate - errors) / len(engines)
        below = 0.0
        bins = {at_edge + index: part for index, part in enumerate(spread)}
        for index, edge in enumerate(edges):
            below += bins.get(index, 0)
            found.append(
                Series(
                    {**own, "__name__": f"{metric}_bucket", "le": le(edge)},
                    [(at, round(n * share * below)) for n, at in enumerate(times)],
                )
            )
        whole = [(at, round(n * share)) for n, at in enumerate(times)]
        found.append(Series({**own, "__name__": f"{metric}_bucket", "le": "+Inf"}, whole))
        found.append(Series({**own, "__name__": f"{metric}_count"}, whole))
    return found
