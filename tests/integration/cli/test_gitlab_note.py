"""The note that a GitLab job writes: one for each merge request, however many pipelines run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fakes.services.http import QuietHandler, answering

pytestmark = pytest.mark.long

NOTE = Path(__file__).parents[3] / "examples/ci/gitlab/note.py"
NOTES = "/api/v4/projects/11/merge_requests/5/notes"


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, str]]:
    """Notes by their ids, kept by a server that pages as GitLab does, two at a time."""
    kept = {1: "looks good", 2: "see above", 3: "thanks"}

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            page = int(parse_qs(urlsplit(self.path).query)["page"][0])
            self._answer([{"id": number, "body": body} for number, body in kept.items()][2 * page - 2 : 2 * page])

        def do_POST(self) -> None:
            assert self.path == NOTES
            kept[max(kept) + 1] = self._body()
            self._answer({"id": max(kept)})

        def do_PUT(self) -> None:
            number = int(self.path.removeprefix(f"{NOTES}/"))
            kept[number] = self._body()
            self._answer({"id": number})

        def _body(self) -> str:
            assert self.headers["PRIVATE-TOKEN"] == "t0ken"
            return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

        def _answer(self, body: object) -> None:
            self.answer(json.dumps(body))

    with answering(Handler) as address:
        monkeypatch.setenv("CI_API_V4_URL", f"http://{address}/api/v4")
        monkeypatch.setenv("CI_PROJECT_ID", "11")
        monkeypatch.setenv("CI_MERGE_REQUEST_IID", "5")
        monkeypatch.setenv("NOTES_TOKEN", "t0ken")
        yield kept


def write(folder: Path, text: str) -> None:
    (folder / "note.md").write_text(text)
    subprocess.run([sys.executable, NOTE, folder / "note.md"], check=True, timeout=60)


def test_the_first_plan_is_a_new_note_and_the_next_replaces_it(notes: dict[int, str], tmp_path: Path) -> None:
    mark = "<!-- tidegate plan delivery.yaml -->"
    write(tmp_path, f"{mark}\nfirst")
    assert notes[4] == f"{mark}\nfirst"
    write(tmp_path, f"{mark}\nsecond")
    assert (len(notes), notes[4]) == (4, f"{mark}\nsecond")
    write(tmp_path, "<!-- tidegate plan other.yaml -->\nthird")
    assert (len(notes), notes[4]) == (5, f"{mark}\nsecond")
