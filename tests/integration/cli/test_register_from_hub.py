"""`tidegate model add NAME hf://...`, as a command, against a served fake of the hub's REST interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.services.hugging_face_hub import Hub, Repository, hugging_face_hub
from fakes.terminal import Said

from registry.files import digest_files
from registry.versions import MlflowRegistry
from tidegate.testing import write_tiny_model

OLD, NEW = "a" * 40, "b" * 40
TOKEN = "hf_of-the-team"
COMMANDS = """
import contextlib, io, json, os, sys
from tidegate.cli import main
for words, token in json.load(sys.stdin):
    os.environ["HF_TOKEN"] = token
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
Run = Callable[..., list[Said]]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    commits = {OLD: write_tiny_model(tmp_path / "old"), NEW: write_tiny_model(tmp_path / "new", seed=2)}
    for folder in commits.values():
        (folder / "README.md").write_text("# A model")
        (folder / "pytorch_model.bin").write_bytes(b"pickled")
        (folder / "modeling.py").write_text("raise SystemExit")
    revisions = {"main": NEW, "v1": OLD}
    repositories = {
        "acme/support-llm": Repository(revisions, commits),
        "acme/private": Repository(revisions, commits, token=TOKEN),
        "acme/gated": Repository(revisions, commits, token=TOKEN, gated=True),
    }
    with hugging_face_hub(repositories) as served:
        yield served


@pytest.fixture
def registry(tmp_path: Path) -> MlflowRegistry:
    return MlflowRegistry(write_embedded_mlflow(tmp_path / "state"))


@pytest.fixture
def register(hub: Hub, registry: MlflowRegistry, tmp_path: Path) -> Run:
    """Registers from one source after the other, in a process of their own: the library reads its variables once.

    Each is a source, or a source and a token.
    """

    def run(*sources: tuple[str, str] | str, endpoint: str = hub.url, more: tuple[str, ...] = ()) -> list[Said]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "MLFLOW_"))}
        own |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache")}
        asked = [(each, "") if isinstance(each, str) else each for each in sources]
        words = ["model", "add", "support-llm", "--state", str(tmp_path / "state"), *more]
        commands = json.dumps([([*words, source], token) for source, token in asked])
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS],
            input=commands,
            env=own,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [Said(*json.loads(line)) for line in done.stdout.splitlines()]

    return run


REFUSED = {
    "hf://acme/none": "hf://acme/none@main: no such repository, or not for this token; check the name, or set ",
    "hf://acme/private": "hf://acme/private@main: no such repository, or not for this token",
    "hf://acme/gated": "hf://acme/gated@main: no such repository, or not for this token",
    "hf://acme/support-llm@v9": ("hf://acme/support-llm@v9: no such revision; name a branch, a tag or a commit"),
    "hf://support-llm": "`hf://support-llm` is no source of a model version; write a folder, hf://ORGANISATION/NAME@",
}


@pytest.mark.slow(reason="a process for each command")
def test_a_branch_becomes_its_commit_a_token_stays_secret_and_what_cannot_be_fetched_is_one_line(
    register: Run, registry: MlflowRegistry, hub: Hub, tmp_path: Path
) -> None:
    somebody = "hf_of-somebody"
    branch, private, *refused = register(
        "hf://acme/support-llm", ("hf://acme/private@v1", TOKEN), *((source, somebody) for source in REFUSED)
    )
    assert branch.code == 0, branch.err
    assert branch.out.startswith("models:/support-llm/1: 7 files, ")
    version = registry.resolve("support-llm", "1")
    wanted = digest_files(hub.repositories["acme/support-llm"].commits[NEW])
    assert version.files == {path: wanted[path] for path in wanted if not path.endswith((".bin", ".py"))}
    tags = registry.tags(version)
    assert tags["tidegate.source"] == f"hf://acme/support-llm@{NEW}"
    assert not [asked for asked in hub.asked if asked.endswith((".bin", ".py"))]
    assert registry.download(version, tmp_path / "engine").joinpath("model.safetensors").is_file()

    assert private.code == 0, private.err
    assert TOKEN not in private.out + private.err + str(registry.tags(registry.resolve("support-llm", "2")))

    for each, why in zip(refused, REFUSED.values(), strict=True):
        assert (each.code, each.out, each.err.count("\n")) == (2, "", 1)
        assert each.err.startswith(f"tidegate: {why}")
        assert somebody not in each.err


def test_a_hub_that_is_away_and_one_that_lies(register: Run, hub: Hub) -> None:
    (away,) = register("hf://acme/support-llm", endpoint="http://127.0.0.1:9")
    assert away.code == 4
    assert "hf://acme/support-llm@main: the hub did not answer (" in away.err
    hub.lies = True
    (lied,) = register("hf://acme/support-llm")
    assert lied.code == 2
    assert "model.safetensors is not the file that the hub has" in lied.err
