"""`tidegate model register NAME hf://...`, as a command, against a served fake of the hub's REST interface."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.services.hugging_face_hub import Hub, Repository, hugging_face_hub

from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_store import embedded_uri
from registry.model_files import digest_files
from tidegate.testing import write_tiny_model

pytestmark = pytest.mark.timeout(300)

OLD, NEW = "a" * 40, "b" * 40
TOKEN = "hf_of-the-team"
TIDEGATE = Path(sys.executable).with_name("tidegate")
Run = Callable[..., subprocess.CompletedProcess[str]]


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
def register(hub: Hub, tmp_path: Path) -> Run:
    """Registers from a source, as a process of its own: the library reads its variables when it is imported."""

    def run(source: str, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "MLFLOW_"))}
        own |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), **variables}
        words = [str(TIDEGATE), "model", "register", "support-llm", source, "--state", str(tmp_path / "state"), *more]
        return subprocess.run(words, env=own, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_a_branch_becomes_the_commit_that_it_means_now(register: Run, hub: Hub, tmp_path: Path) -> None:
    done = register("hf://acme/support-llm", "--alias", "candidate")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("models:/support-llm/1 (candidate): 7 files, ")
    registry = MlflowRegistry(embedded_uri(tmp_path / "state"))
    version = registry.resolve("support-llm", "candidate")
    wanted = digest_files(hub.repositories["acme/support-llm"].commits[NEW])
    assert version.files == {path: wanted[path] for path in wanted if not path.endswith((".bin", ".py"))}
    tags = registry.tags(version)
    assert (tags["tidegate.source"], tags["tidegate.source.revision"]) == (f"hf://acme/support-llm@{NEW}", "main")
    assert not [asked for asked in hub.asked if asked.endswith((".bin", ".py"))]
    assert registry.download(version, tmp_path / "engine").joinpath("model.safetensors").is_file()


@pytest.mark.long
@pytest.mark.parametrize("revision", ["v1", OLD])
def test_a_tag_or_a_commit_may_be_named(register: Run, tmp_path: Path, revision: str) -> None:
    done = register(f"hf://acme/support-llm@{revision}", "--output", "json")
    assert done.returncode == 0, done.stderr
    registry = MlflowRegistry(embedded_uri(tmp_path / "state"))
    assert registry.tags(registry.resolve("support-llm", "1"))["tidegate.source"] == f"hf://acme/support-llm@{OLD}"


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (
            "hf://acme/none",
            2,
            "hf://acme/none@main: no such repository, or a private one; check the name, or set ",
        ),
        ("hf://acme/private", 2, "hf://acme/private@main: no such repository, or a private one"),
        ("hf://acme/gated", 2, "hf://acme/gated@main: the repository is gated, and not for this token; set HF_TOKEN"),
        ("hf://acme/support-llm@v9", 2, "hf://acme/support-llm@v9: no such revision; name a branch, a tag or a commit"),
        (
            "hf://support-llm",
            2,
            "`hf://support-llm` is no source of a model version; write a folder, runs:/RUN/",
        ),
    ],
)
def test_what_cannot_be_fetched_is_said_in_one_line(register: Run, source: str, code: int, said: str) -> None:
    done = register(source, HF_TOKEN="hf_of-somebody")
    assert (done.returncode, done.stdout) == (code, "")
    assert f"tidegate: {said}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "hf_of-somebody" not in done.stderr


def test_a_private_one_takes_the_token_which_nobody_hears_of(register: Run, tmp_path: Path) -> None:
    done = register("hf://acme/private@v1", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    registry = MlflowRegistry(embedded_uri(tmp_path / "state"))
    tags = registry.tags(registry.resolve("support-llm", "1"))
    assert TOKEN not in done.stdout + done.stderr + str(tags)


def test_a_hub_that_is_away_and_one_that_lies(register: Run, hub: Hub) -> None:
    away = register("hf://acme/support-llm", HF_ENDPOINT="http://127.0.0.1:9")
    assert away.returncode == 4
    assert "hf://acme/support-llm@main: the hub did not answer (" in away.stderr
    hub.lies = True
    lied = register("hf://acme/support-llm")
    assert lied.returncode == 2
    assert "model.safetensors is not the file that the hub has" in lied.stderr
