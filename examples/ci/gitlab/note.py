"""Writes a plan as a note under the merge request; the one that an earlier pipeline wrote is replaced."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen


def notes_of_merge_request() -> str:
    project, number = os.environ["CI_PROJECT_ID"], os.environ["CI_MERGE_REQUEST_IID"]
    return f"{os.environ['CI_API_V4_URL']}/projects/{project}/merge_requests/{number}/notes"


def ask(method: str, url: str, body: dict[str, str] | None = None) -> Any:
    headers = {"PRIVATE-TOKEN": os.environ["NOTES_TOKEN"], "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, headers, method=method), timeout=30) as answer:
        return json.load(answer)


def earlier(notes: str, mark: str) -> int | None:
    """The id of the note that begins with that line, if there is one."""
    page = 1
    while found := ask("GET", f"{notes}?per_page=100&page={page}"):
        for note in found:
            if note["body"].startswith(mark):
                return int(note["id"])
        page += 1
    return None


def main(file: str) -> None:
    body = Path(file).read_text(encoding="utf-8")
    notes = notes_of_merge_request()
    old = earlier(notes, body.splitlines()[0])
    if old is None:
        ask("POST", notes, {"body": body})
    else:
        ask("PUT", f"{notes}/{old}", {"body": body})


if __name__ == "__main__":
    main(sys.argv[1])
