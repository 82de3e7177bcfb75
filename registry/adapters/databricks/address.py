"""Which addresses are Databricks', and what each of them can keep."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tidegate.core.errors import UsageError
from tidegate.core.text import redacted

WORKSPACE, CATALOG, OPEN_CATALOG = "databricks", "databricks-uc", "uc"
"""Schemes: a workspace, its Unity Catalog, and Unity Catalog's open server, which is another one."""
FOLDER = "TIDEGATE_DATABRICKS_FOLDER"
"""The variable with the workspace's folder for experiments."""
PROFILE = "DATABRICKS_CONFIG_PROFILE"
"""Databricks' own variable: which login of its file is meant."""
SHARED = "/Shared/tidegate"
"""Of everybody in the workspace, unless its administrator says otherwise."""


def is_workspace(uri: str) -> bool:
    """Whether it is that of runs on Databricks: `databricks` or `databricks://PROFILE`."""
    return _scheme(uri) == WORKSPACE


def is_catalog(uri: str) -> bool:
    """Whether it is that of versions in Unity Catalog: `databricks-uc` or `databricks-uc://PROFILE`."""
    return _scheme(uri) == CATALOG


def catalog_of(workspace: str) -> str:
    """Unity Catalog by the same login: as MLflow's own client has it, unless another registry is named."""
    return workspace.replace(WORKSPACE, CATALOG, 1)


def use_profile(uri: str) -> None:
    """Let Databricks' own library log in as the address says: MLflow's client does not tell it the profile."""
    if profile := _profile(uri):
        os.environ.setdefault(PROFILE, profile)


def experiments_folder() -> str:
    """Experiments of a workspace are files of it: their names are paths.

    Raises:
        UsageError: the variable holds none.
    """
    folder = os.environ.get(FOLDER) or SHARED
    if not folder.startswith("/"):
        raise UsageError(f"{FOLDER}: expected a folder of the workspace, such as {SHARED}; found {folder!r}")
    return folder.rstrip("/")


def refuse_unfit(tracking_uri: str, registry_uri: str) -> None:
    """Refuse what has no place for runs, or none for aliases, and two logins of Databricks.

    Raises:
        UsageError: it is one of these.
    """
    if is_catalog(tracking_uri) or _scheme(tracking_uri) == OPEN_CATALOG:
        raise UsageError(
            f"{redacted(tracking_uri)}: Unity Catalog keeps model versions, and no runs",
            hint="MLFLOW_TRACKING_URI=databricks, with MLFLOW_REGISTRY_URI=databricks-uc",
        )
    if _scheme(registry_uri) == OPEN_CATALOG:
        raise UsageError(
            f"{redacted(registry_uri)}: Unity Catalog's open server has no aliases, which deliveries move",
            hint="name an MLflow server, or databricks-uc, in MLFLOW_REGISTRY_URI",
        )
    if is_workspace(registry_uri):
        raise UsageError(
            f"{redacted(registry_uri)}: a workspace's own model registry has no aliases, which deliveries move",
            hint="name its Unity Catalog: MLFLOW_REGISTRY_URI=databricks-uc",
        )
    if is_workspace(tracking_uri) and is_catalog(registry_uri) and _profile(tracking_uri) != _profile(registry_uri):
        shown = redacted(tracking_uri)
        raise UsageError(
            f"{shown} and {redacted(registry_uri)} are two logins, and MLflow's client reads files with one",
            hint=f"name the same profile in both: MLFLOW_REGISTRY_URI={catalog_of(shown)}",
        )


def _profile(uri: str) -> str:
    """Empty where it is that of the environment."""
    return uri.partition("://")[2]


def _scheme(uri: str) -> str:
    return urlsplit(uri).scheme or uri
