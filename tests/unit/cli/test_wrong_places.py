"""What a spec or an option names and is not there is wrong usage (2), with its place, before anybody is asked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from gates.answers.golden import MOST_PROMPTS
from pipelines.spec.policy import prompts_in
from tidegate.cli import main
from tidegate.core.spec import SpecError

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["init", str(tmp_path)]) == 0
    capsys.readouterr()
    return tmp_path / "delivery.yaml"


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    """A spec of two clusters, with the files that it names."""
    shutil.copytree(EXAMPLES / "kubernetes", tmp_path, dirs_exist_ok=True)
    return tmp_path / "delivery.yaml"


def kubeconfig(path: Path, *contexts: str) -> Path:
    named = [{"name": name, "context": {"cluster": "c"}} for name in contexts]
    server = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    path.write_text(yaml.safe_dump({"contexts": named, "clusters": server, "users": []}))
    return path


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("golden.jsonl", "gone.jsonl", "stages[0].offline.dataset: found gone.jsonl: no such file"),
        ("prompts: prompts.txt", "prompts: gone.txt", "traffic.prompts: found gone.txt: no such file"),
    ],
)
def test_a_file_that_is_not_there_is_said_where_the_spec_names_it(
    spec: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    text = spec.read_text()
    spec.write_text(text.replace(before, after))
    line = text[: text.index(before)].count("\n") + 1
    assert main(["plan", str(spec)]) == 2
    assert capsys.readouterr().err == (f"{spec}:{line}: {said}; expected the path of a file, relative to the spec\n")


@pytest.mark.parametrize(
    ("found", "nearest"), [("h100", "nvidia-h100-80gb"), ("H200", "nvidia-h200-141gb"), ("nvidia_l4", "nvidia-l4")]
)
def test_an_unknown_accelerator_is_told_the_nearest(
    spec: Path, capsys: pytest.CaptureFixture[str], found: str, nearest: str
) -> None:
    spec.write_text(spec.read_text().replace("accelerator: cpu", f"accelerator: {found}"))
    assert main(["plan", str(spec)]) == 2
    err = capsys.readouterr().err
    assert (
        f"engine.accelerator: found '{found}'; expected {nearest} (the nearest known name), or another of 'cpu'" in err
    )


def test_a_golden_set_has_a_limit_that_is_said_at_once(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (json.dumps({"prompt": f"{number}?", "expected": "a"}) for number in range(MOST_PROMPTS + 5))
    (spec.parent / "golden.jsonl").write_text("\n".join(lines))
    assert main(["plan", str(spec)]) == 2
    assert capsys.readouterr().err == (
        f"{spec.parent}/golden.jsonl:10001: found 10,005 lines; "
        "expected a JSON object per line, at most 10,000 lines and 156 MiB\n"
    )


def test_a_file_that_is_too_large_is_told_by_its_size_and_not_read(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    with prompts.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(SpecError, match="found 3,072 MiB; expected one prompt a line, at most"):
        prompts_in(prompts)


@pytest.mark.parametrize("command", ["deliver", "status", "doctor", "rollback"])
def test_a_kubeconfig_without_the_contexts_names_those_that_it_has(
    clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    config = kubeconfig(tmp_path / "config", "kind-a", "kind-b")
    state = [] if command == "doctor" else ["--state", str(tmp_path / "state")]
    assert main([command, str(clusters), "--kubeconfig", str(config), *state]) == 2
    assert f"no context prod-eu-west-1 in {config}; it has kind-a, kind-b" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.long
def test_a_region_whose_context_is_there_is_still_looked_at(
    clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    config = kubeconfig(tmp_path / "config", "prod-eu-west-1")
    assert main(["status", str(clusters), "--kubeconfig", str(config), "--state", str(tmp_path / "state")]) == 4
    out = capsys.readouterr().out
    assert "eu-west-1: cannot be seen: http://127.0.0.1:1 cannot be reached" in out
    assert "us-east-1: cannot be seen: no context prod-us-east-1" in out
