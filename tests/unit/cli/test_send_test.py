"""`tidegate doctor --send-test` tries what a spec notifies; an address is never printed."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from fakes.delivery.world import GOLDEN, SPEC
from fakes.services.http import answering

from tidegate.cli import main

NOTIFY = """notify:
- slack: {url_from_env: TIDEGATE_SPEC_CHAT}
- {webhook: {url_from_env: TIDEGATE_SPEC_HOOK}, about: [closed]}
"""


class Receiver(BaseHTTPRequestHandler):
    """Accepts everything but what comes to /gone."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(404 if self.path == "/gone" else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "golden.jsonl").write_text(GOLDEN)
    path = tmp_path / "delivery.yaml"
    path.write_text(SPEC + NOTIFY)
    return path


@pytest.mark.parametrize(("chat", "ends"), [("secret", (0, "accepted")), ("gone", (4, "answered 404"))])
def test_everyone_gets_a_message_and_who_does_not_accept_it_is_named(
    chat: str,
    ends: tuple[int, str],
    spec: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told = ends
    with answering(Receiver) as address:
        monkeypatch.setenv("TIDEGATE_SPEC_CHAT", f"http://{address}/{chat}")
        monkeypatch.setenv("TIDEGATE_SPEC_HOOK", f"http://{address}/hook")
        assert main(["doctor", str(spec), "--send-test"]) == code
    assert capsys.readouterr() == (
        f"slack at $TIDEGATE_SPEC_CHAT: {told}\nwebhook at $TIDEGATE_SPEC_HOOK: accepted\n",
        "",
    )
