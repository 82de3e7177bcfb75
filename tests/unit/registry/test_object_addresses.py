"""What addresses in object stores mean, and who gets no token."""

from __future__ import annotations

import pytest

from registry.mlflow import blob_address, clients_of
from tidegate.core.errors import UsageError


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("wasbs://models@ours.blob.core.windows.net/a/b", "wasbs://models@ours.blob.core.windows.net/a/b"),
        ("wasb://models@ours.blob.core.windows.net", "wasbs://models@ours.blob.core.windows.net"),
        ("abfss://models@ours.dfs.core.windows.net/a%20b/", "wasbs://models@ours.blob.core.windows.net/a b/"),
        ("abfss://m@ours.dfs.core.chinacloudapi.cn/a", "wasbs://m@ours.blob.core.chinacloudapi.cn/a"),
        ("wasbs://m@ours.blob.core.usgovcloudapi.net/a", "wasbs://m@ours.blob.core.usgovcloudapi.net/a"),
        ("s3://models/a%20b", "s3://models/a%20b"),
        ("mlflow-artifacts:/1/a", "mlflow-artifacts:/1/a"),
    ],
)
def test_both_ways_of_azure_lead_to_its_blobs(address: str, asked: str) -> None:
    assert blob_address(address) == asked


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
        blob_address(address)


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
