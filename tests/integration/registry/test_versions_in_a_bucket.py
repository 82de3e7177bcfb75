"""Where MLflow keeps files in a bucket, versions are registered, adopted and brought by the bucket's own client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fakes.services.mlflow_server import mlflow_server
from fakes.services.object_stores import BUCKET, S3_KEYS, SECRET_KEY, require_known_keys, s3

from registry.files import digest_files
from registry.mlflow_client import open_client
from registry.versions import MlflowRegistry

pytestmark = [pytest.mark.slow(reason="a bucket's server, and a process for each command")]
WITHOUT = """
import os, sys
for name in os.environ["TEST_NOT_INSTALLED"].split():
    sys.modules[name] = None  # as where it is not installed
from tidegate.cli import main
sys.exit(main(sys.argv[1:]))
"""
NO_MACHINE = {"AWS_EC2_METADATA_DISABLED": "true"}
ROLE = "arn:aws:iam::123456789012:role/engines"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Mapping[str, str]]]:
    with s3(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(scope="module")
def uri(bucket: tuple[str, Mapping[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An MLflow server that leaves the bucket to those who ask."""
    root = f"s3://{BUCKET}/mlflow"
    with mlflow_server(tmp_path_factory.mktemp("mlflow"), bucket=root, settings=bucket[1]) as started:
        yield started


@pytest.fixture(autouse=True)
def access(bucket: tuple[str, Mapping[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket[1].items():
        monkeypatch.setenv(name, value)


def tidegate(uri: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process without what opens databases, as in a pod; of AWS' variables it has these alone."""
    ours = {name: value for name, value in os.environ.items() if name not in S3_KEYS}
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT, *arguments],
        env=ours | NO_MACHINE | {"MLFLOW_TRACKING_URI": uri, "TEST_NOT_INSTALLED": "pandas sqlalchemy"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def logged_by_others(uri: str, name: str, folder: Path) -> None:
    """As a training pipeline logs plain artifacts, by MLflow's own library."""
    client = open_client(uri)
    run = client.create_run(client.create_experiment(f"training of {name}")).info
    client.log_artifacts(run.run_id, str(folder), "export")
    client.create_registered_model(name)
    client.create_model_version(name, f"{run.artifact_uri}/export")


def test_a_version_of_others_is_adopted_and_brought_by_a_pod_with_keys(
    uri: str, name: str, folder: Path, tmp_path: Path
) -> None:
    logged_by_others(uri, name, folder)
    MlflowRegistry(uri).adopt(name, "1")
    brought = tidegate(uri, "model", "download", f"models:/{name}/1", str(tmp_path / "pod"), **S3_KEYS)
    assert brought.returncode == 0, brought.stderr
    assert digest_files(tmp_path / "pod" / "model") == digest_files(folder)


@pytest.mark.long
def test_a_pod_with_workload_identity_needs_no_keys(uri: str, name: str, folder: Path, tmp_path: Path) -> None:
    """As EKS gives it to a service account: a role, and a token in a file that the chain takes to STS."""
    MlflowRegistry(uri).register(name, folder)
    token = tmp_path / "token"
    token.write_text("eyJhbGciOi.of-the-service-account.signature")
    place = (f"models:/{name}/1", str(tmp_path / "pod"))
    refused = tidegate(uri, "model", "download", *place, AWS_REGION="eu-west-1")
    assert refused.returncode == 4
    assert "credentials come from a role of the pod" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1

    identity = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_REGION": "eu-west-1"}
    brought = tidegate(uri, "model", "download", *place, **identity)
    assert brought.returncode == 0, brought.stderr
    assert "of-the-service-account" not in brought.stdout + brought.stderr
    assert digest_files(tmp_path / "pod" / "model") == digest_files(folder)


def test_without_the_extra_its_command_is_told(uri: str, name: str, folder: Path, tmp_path: Path) -> None:
    MlflowRegistry(uri).register(name, folder)
    (tmp_path / "boto3.py").write_text("raise ModuleNotFoundError(\"No module named 'boto3'\", name='boto3')\n")
    where = {"PYTHONPATH": str(tmp_path)}
    told = tidegate(uri, "model", "download", f"models:/{name}/1", str(tmp_path / "pod"), **S3_KEYS, **where)
    assert told.stderr == "tidegate: this needs boto3, which is not installed; run: pip install 'boto3<2,>=1.40'\n"
    assert told.returncode == 2


@pytest.mark.long
def test_keys_that_the_store_refuses_are_in_no_output(
    bucket: tuple[str, Mapping[str, str]], uri: str, name: str, folder: Path, tmp_path: Path
) -> None:
    MlflowRegistry(uri).register(name, folder)
    require_known_keys(bucket[0])
    place = (f"models:/{name}/1", str(tmp_path / "pod"))
    told = tidegate(uri, "model", "download", *place, "--debug", **S3_KEYS)
    assert told.returncode == 4
    assert "s3://models/mlflow/" in told.stderr
    assert SECRET_KEY not in told.stdout + told.stderr
