"""What addresses in object stores mean, and who gets no token."""

from __future__ import annotations

import pytest

from registry.adapters.version_files.anywhere import clients_of, is_in_object_store
from registry.adapters.version_files.azure import AzureContainer
from registry.adapters.version_files.s3 import S3Bucket
from tidegate.core.errors import UsageError

KEY = "c2VjcmV0"


@pytest.fixture(autouse=True)
def access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCESS_KEY", KEY)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


@pytest.mark.parametrize(
    ("address", "url", "folder"),
    [
        ("wasbs://models@ours.blob.core.windows.net/a/b", "https://ours.blob.core.windows.net/models", "a/b"),
        ("wasb://models@ours.blob.core.windows.net", "https://ours.blob.core.windows.net/models", ""),
        ("abfss://models@ours.dfs.core.windows.net/a%20b/", "https://ours.blob.core.windows.net/models", "a b"),
        ("abfss://m@ours.dfs.core.chinacloudapi.cn/a", "https://ours.blob.core.chinacloudapi.cn/m", "a"),
        ("wasbs://m@ours.blob.core.usgovcloudapi.net/a", "https://ours.blob.core.usgovcloudapi.net/m", "a"),
    ],
)
def test_both_ways_of_azure_lead_to_its_blobs(address: str, url: str, folder: str) -> None:
    container, found = AzureContainer.at(address)
    assert (container.url, found) == (url, folder)


@pytest.mark.parametrize(
    "address",
    [
        "wasbs://models@ours.blob.example.com/a",
        "abfss://models@ours.dfs.core.windows.net.example.com/a",
        "abfss://models@ours.example.com.dfs.core.windows.net/a",
        "wasbs://ours.blob.core.windows.net/a",
        "abfss://models@example.com%2F.dfs.core.windows.net/a",
    ],
)
def test_nobody_elses_host_gets_a_token(address: str) -> None:
    with pytest.raises(UsageError, match="is no address of Azure's"):
        AzureContainer.at(address)


def test_what_is_no_connection_string_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountKey={KEY}")
    with pytest.raises(UsageError, match="AZURE_STORAGE_CONNECTION_STRING: is no connection string") as caught:
        AzureContainer.at("wasbs://models@ours.blob.core.windows.net/a")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("written", ["{", "[]", '"aws:kms"'])
def test_arguments_of_an_upload_are_an_object(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_S3_UPLOAD_EXTRA_ARGS", written)
    with pytest.raises(UsageError, match="MLFLOW_S3_UPLOAD_EXTRA_ARGS: expected a JSON object"):
        S3Bucket.at("s3://models/a")


def test_an_endpoint_that_is_none_is_told_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "minio:9000")
    with pytest.raises(UsageError, match="check MLFLOW_S3_ENDPOINT_URL"):
        S3Bucket.at("s3://models/a")


@pytest.mark.parametrize(
    ("address", "there"),
    [("s3://models/7", True), ("gs://models/7", True), ("/srv/7", False), ("mlflow-artifacts:/7", False)],
)
def test_which_addresses_are_of_object_stores(address: str, there: bool) -> None:
    assert is_in_object_store(address) is there


@pytest.mark.parametrize(
    ("address", "packages"),
    [
        ("s3://models/a", ("boto3",)),
        ("gs://models/a", ("google.cloud.storage",)),
        ("abfss://m@ours.dfs.core.windows.net/a", ("azure.storage.blob", "azure.identity")),
        ("mlflow-artifacts:/1/a", ()),
        ("/models/a", ()),
    ],
)
def test_each_store_is_read_by_its_providers_package(address: str, packages: tuple[str, ...]) -> None:
    assert clients_of(address) == packages
