"""The nouns of the registry: model versions, their files, the aliases that say what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from tidegate.core.model import Value


def _inside(path: str) -> str:
    """Whoever writes the files of a version below a folder must end up below it."""
    if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("a path of a file below the model's folder")
    return path


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal; nothing else is safe to name a folder by."""
InnerPath = Annotated[str, AfterValidator(_inside)]
"""Relative, with forward slashes, and without a way out."""


class Alias(StrEnum):
    """What a model version is for. MLflow keeps at most one version behind each."""

    CHAMPION = "champion"
    """In production."""
    CHALLENGER = "challenger"
    """To be delivered next."""
    PREVIOUS = "previous"
    """The champion before this one: what `tidegate rollback --to previous` goes back to."""


class ModelVersion(Value):
    """One registered version of a model, with what is needed to prove that its files are its own."""

    name: str
    version: str
    """Its number in MLflow, as text."""
    digest: Digest
    """SHA-256 over the sorted list of file digests: one name for all the files together."""
    files: Mapping[InnerPath, Digest]
    """Relative path to SHA-256, for every file of the Hugging Face directory."""
    size_bytes: int
    aliases: tuple[str, ...] = ()

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return f"models:/{self.name}/{self.version}"


class Event(Value):
    """One line of the ledger."""

    at: datetime
    step: str
    """The step's id, such as `canary@eu-west-1/25`; `delivery` for the delivery itself."""
    kind: str
    """`started`, `traffic`, `evidence`, `verdict`, `done`, `failed`, `undone`, `closed`; of people and what waits for
    them `waiting`, `approved`, `refused`, `stop`."""
    message: str
    """One line for people."""
    data: Mapping[str, object] = {}
    """The same for programs; `pipelines.payloads` says what each kind carries."""


class DeliverySummary(Value):
    """One delivery, as a list of them shows it."""

    id: str
    name: str
    """The model's name."""
    version: str
    champion: str | None
    """The version that served when it began."""
    started: datetime
    ended: datetime | None = None
    """None while it runs, and for one that died without a word."""
    outcome: str | None = None
    """As in `registry.adapters.mlflow_ledger.RUN_STATUS`; None while it is open."""
    reason: str | None = None
    last_step: str | None = None
    """The step of the last event."""
    host: str
    pid: int
    heartbeat: datetime
    """When its process last said that it lives."""
    patience_seconds: float = 0.0
    """Of one that many processes carry: how long nothing may be heard of it; 0 when one process carries it all."""
    key: str | None = None
    """Of whoever opened it, such as a workflow's uid."""


class StoredRun(Value):
    """An MLflow run as its store gives it."""

    id: str
    status: str
    started: int
    """Milliseconds since 1970."""
    ended: int | None
    artifacts: str
    """The address of its artifacts."""
    tags: Mapping[str, str]


class Metric(Value):
    """One point of a run's time series."""

    name: str
    value: float
    at: int
    """Milliseconds since 1970."""
    step: int


class StoredModel(Value):
    """A registered model as its store gives it."""

    name: str
    aliases: Mapping[str, str]
    """The number of the version behind each."""


class StoredVersion(Value):
    """A model version as its store gives it, whoever registered it."""

    name: str
    version: str
    tags: Mapping[str, str]
