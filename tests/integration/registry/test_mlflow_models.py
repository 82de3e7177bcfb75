"""What only the real MLflow can show: its store, its own loaders, its faults."""

import hashlib
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from registry.conventions import SUMS
from registry.errors import DigestMismatch, StoreUnreachable, UnfitModel, UnknownModel
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.core.errors import ExitCode
from tidegate.testing import write_tiny_model

ENGINE_PYTHON = Path("/opt/tidegate/engine/bin/python")

LOAD = """
import sys
sys.path.append(sys.argv[1])  # last, so that transformers and numpy are the engine's own
import mlflow
mlflow.set_tracking_uri(sys.argv[2])
import mlflow.transformers
pipeline = mlflow.transformers.load_model(sys.argv[3])
said = pipeline("Hello", max_new_tokens=4, do_sample=False)
print(type(pipeline).__name__, pipeline.tokenizer.decode(pipeline.tokenizer.encode("Hello")), len(said), sep="|")
"""


@pytest.fixture
def registry(tracking_uri: str) -> MlflowRegistry:
    return MlflowRegistry(tracking_uri)


def stored(state: Path, name: str) -> Path:
    """Where MLflow keeps the only version of `name`."""
    uri = embedded_uri(state)
    location = MlflowClient(uri, registry_uri=uri).get_model_version_download_uri(name, "1")
    return Path(location.removeprefix("file://"))


def test_weights_lie_in_the_store_once_next_to_their_sums(
    registry: MlflowRegistry, state: Path, name: str, folder: Path
) -> None:
    version = registry.register(name, folder)
    sums = stored(state, name) / "model" / SUMS
    assert hashlib.sha256(sums.read_bytes()).hexdigest() == version.digest
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=sums.parent, check=True)

    kept = list(stored(state, name).rglob("*.safetensors"))
    assert len(kept) == 1
    assert not kept[0].is_symlink()


@pytest.mark.skipif(not ENGINE_PYTHON.exists(), reason="no engine environment; `tidegate setup` makes it")
@pytest.mark.long
def test_mlflows_own_loader_loads_it_where_transformers_is(
    registry: MlflowRegistry, tracking_uri: str, name: str, folder: Path
) -> None:
    version = registry.register(name, folder)

    packages = sysconfig.get_paths()["purelib"]
    command = [str(ENGINE_PYTHON), "-c", LOAD, packages, tracking_uri, version.uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "TextGenerationPipeline|Hello|1"


def test_a_file_changed_in_the_store_is_refused_by_name_and_nothing_is_kept(
    registry: MlflowRegistry, state: Path, name: str, folder: Path, tmp_path: Path
) -> None:
    version = registry.register(name, folder)
    weights = stored(state, name) / "model" / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)

    with pytest.raises(DigestMismatch, match=r"changed: model\.safetensors") as refusal:
        registry.download(version, tmp_path / "engine")

    assert refusal.value.exit_code == ExitCode.OUTSIDE
    assert list((tmp_path / "engine").iterdir()) == []


def test_a_second_download_needs_no_store(registry: MlflowRegistry, name: str, folder: Path, tmp_path: Path) -> None:
    version = registry.register(name, folder)
    first = registry.download(version, tmp_path / "engine")

    assert MlflowRegistry("http://127.0.0.1:9").download(version, tmp_path / "engine") == first


def test_a_version_made_without_tidegate_is_refused(registry: MlflowRegistry, tracking_uri: str, name: str) -> None:
    client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
    client.create_registered_model(name)
    client.create_model_version(name, "file:///nowhere", run_id="0")

    assert [version.digest for version in registry.versions(name)] == [""]
    with pytest.raises(UnfitModel, match="was not registered by tidegate"):
        registry.resolve(name, "1")


def changed_tag(key: str, value: str) -> Callable[[MlflowClient, str, Path], None]:
    return lambda client, name, _: client.set_model_version_tag(name, "1", key, value)


def changed_sums(text: str, *, tag_too: bool = True) -> Callable[[MlflowClient, str, Path], None]:
    def change(client: MlflowClient, name: str, sums: Path) -> None:
        sums.write_text(text)
        if tag_too:
            digest = hashlib.sha256(text.encode()).hexdigest()
            client.set_model_version_tag(name, "1", "tidegate.digest", digest)

    return change


CHANGES: dict[str, Callable[[MlflowClient, str, Path], None]] = {
    "digest: String should match pattern": changed_tag("tidegate.digest", "/somewhere/else"),
    "tidegate.digest is not the digest of its SHA256SUMS": changed_tag("tidegate.digest", "d" * 64),
    "size_bytes: Input should be a valid integer": changed_tag("tidegate.size_bytes", "many"),
    "tidegate.adopted: TypeError": changed_tag("tidegate.adopted", "[]"),
    f"has no {SUMS}": lambda _, __, sums: sums.unlink(),
    "is not the digest of its SHA256SUMS": changed_sums(f"{'d' * 64}  config.json\n", tag_too=False),
    "a path of a file below the model's folder": changed_sums(f"{'d' * 64}  ../config.json\n"),
    "a line is no SHA-256": changed_sums("no digest\n"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_version_that_was_changed_is_refused_before_any_folder_is_touched(
    registry: MlflowRegistry, tracking_uri: str, state: Path, name: str, folder: Path, *, said: str
) -> None:
    registry.register(name, folder)
    client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
    CHANGES[said](client, name, stored(state, name) / "model" / SUMS)
    with pytest.raises(UnfitModel, match=f"models:/{name}/1: it was changed since.*{said}") as refusal:
        MlflowRegistry(tracking_uri).resolve(name, "1")
    assert refusal.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "sqlite:////proc", "bogus://store"])
def test_a_store_that_is_not_there_is_one_line_and_exit_4(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(StoreUnreachable) as refusal:
        MlflowRegistry(uri).resolve("m", "champion")

    assert refusal.value.exit_code == ExitCode.OUTSIDE
    assert refusal.value.message.startswith(f"MLflow store {uri}: ")
    assert "no answer ([Errno 111] Connection refused)" in refusal.value.message or not uri.startswith("http")
    assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_made_has_no_models_and_takes_none(folder: Path) -> None:
    registry = MlflowRegistry("sqlite:////proc/nowhere/mlflow.db")
    with pytest.raises(UnknownModel, match="which has none"):
        registry.resolve("m", "champion")
    with pytest.raises(StoreUnreachable, match="No such file or directory: '/proc/nowhere'"):
        registry.register("m", folder)


@pytest.mark.long
def test_mlflow_says_nothing_of_its_own(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from registry.versions import MlflowRegistry as R\n"
    script += "from registry.ports import embedded_uri\n"
    script += "R(embedded_uri(Path(sys.argv[1]))).register('m', Path(sys.argv[2]), alias='champion')"
    source = write_tiny_model(tmp_path)
    command = [sys.executable, "-c", script, str(tmp_path / "state"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "state"]
