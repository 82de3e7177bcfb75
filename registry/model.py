"""The nouns of the registry: model versions, deliveries and their events, and what aliases say of versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from registry.conventions import MODEL_FOLDER, SERVING_TAG
from tidegate.core.model import Value


def _inside(path: str) -> str:
    """Files are written below a folder by these paths, and must end up below it."""
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
    """The champion before this one: what `tidegate rollback --to previous` rolls back to."""


class ServingAliases(Value):
    """How a team calls the version in production, and the one before it."""

    champion: str = Alias.CHAMPION.value
    previous: str = Alias.PREVIOUS.value


SERVING = ServingAliases()
"""Names of those who chose none."""


class ModelVersion(Value):
    """One registered version of a model, with what is needed to prove that its files are its own."""

    name: str
    version: str
    """Its number in MLflow, as text."""
    digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    """The SHA-256 of its SHA256SUMS: one name for all the files together. Empty until the version is adopted."""
    files: Mapping[InnerPath, Digest]
    """Relative path to SHA-256, for every file of the Hugging Face directory. Lists of versions leave it empty."""
    size_bytes: int
    aliases: tuple[str, ...] = ()
    folders: tuple[str, ...] = Field(default=(MODEL_FOLDER,), min_length=1)
    """Below the version's artifacts: where the files are. The first lies on top; "" is the artifacts themselves."""

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return self.uri_of(self.name, self.version)

    @staticmethod
    def uri_of(name: str, version: str) -> str:
        """The same, of a version that is known by its number alone."""
        return f"models:/{name}/{version}"


class EngineRecord(Value):
    """An engine by everything that makes it: two engines of one model version differ in this."""

    name: str
    """By which regions, metrics and the ledger know it: the number of its model version; for a change of the engine
    alone `NUMBER-FINGERPRINT`."""
    fingerprint: Digest
    """Over settings, image and pods."""
    settings: Mapping[str, JsonValue]
    """`engine` of the spec, as far as it says something."""
    image: str = ""
    """What clusters run; empty on a machine."""
    pods: Mapping[str, JsonValue] = {}
    """What else of the spec makes its pods in clusters, such as patches."""


def number_of(engine: str) -> str:
    """The number of the model version that an engine of that name serves."""
    return engine.partition("-")[0]


class Serving(Value):
    """What a version's tag `tidegate.serving` says: how it serves as champion, or did, and what was before."""

    now: EngineRecord | None = None
    before: EngineRecord | None = None
    """The engine that served this version before `now` did."""
    replaced: str = ""
    """The number of the champion that the version took over from."""

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> Serving:
        """As the tags of a version say; nothing where anybody has written something else there."""
        try:
            return cls.model_validate_json(tags.get(SERVING_TAG) or "{}")
        except ValidationError:
            return cls()

    @property
    def tag(self) -> dict[str, str]:
        """What to mark a version with. A field that was not given stays as the version has it."""
        return {SERVING_TAG: self.model_dump_json(exclude_unset=True)}

    def onto(self, kept: Serving) -> Serving:
        """`kept`, with the fields that were given here."""
        return kept.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


class EventKind(StrEnum):
    """What events tell of; `pipelines.events.payloads` has what each carries."""

    STARTED = "started"
    TRAFFIC = "traffic"
    EVIDENCE = "evidence"
    VERDICT = "verdict"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"
    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    ALLOWED = "allowed"
    IGNORED = "ignored"
    REQUESTED = "requested"
    RESUMED = "resumed"
    STOP = "stop"
    LEFT = "left"
    RETURNED = "returned"
    CLOSED = "closed"


class StepId(Value):
    """A step's id, taken apart: `canary@eu-west-1/25`. Whatever the text is, something comes of it."""

    stage: str
    place: str = ""
    """A region, or a wave's number; empty for what is done once for the whole delivery."""
    weight: str = ""
    """Percent of users, where the stage has one."""

    @classmethod
    def parsed(cls, text: str) -> StepId:
        """The parts of `text`."""
        stage, _, where = text.partition("@")
        place, _, weight = where.partition("/")
        return cls(stage=stage, place=place, weight=weight)

    @property
    def region(self) -> str | None:
        """None for what names a wave, or no place."""
        return self.place if self.place and not self.place.isdecimal() else None


class Event(Value):
    """One line of the ledger."""

    at: datetime
    step: str
    """The step's id, such as `canary@eu-west-1/25`; `delivery` for the delivery itself."""
    kind: str
    """An `EventKind`; text, so that an older tidegate reads what a newer one recorded."""
    message: str
    """One line for people."""
    data: Mapping[str, object] = {}
    """The same for programs; `pipelines.events.payloads` says what each kind carries."""


class DeliverySummary(Value):
    """One delivery, as a list of them shows it."""

    id: str
    name: str
    """The model's name."""
    version: str
    champion: str | None
    """The version that served when it began."""
    on_trial: str = ""
    """The name of the engine that it delivers; empty where that is `version`."""
    in_production: str = ""
    """The name of the engine that served when it began; empty where that is `champion`."""
    started: datetime
    ended: datetime | None = None
    """None while it runs, and for one that died without a word."""
    outcome: str | None = None
    """As in `registry.record.ENDINGS`; None while it is open."""
    reason: str | None = None
    last_step: str | None = None
    """The step of the last event."""
    host: str
    pid: int
    machine: str = ""
    """The boot and the PID namespace that `pid` belongs to; no other is called so."""
    heartbeat: datetime
    """When its process last said that it lives."""
    patience_seconds: float = 0.0
    """Of one that many processes carry: how long it may be silent; 0 when one process carries it all."""
    key: str | None = None
    """Of the one who opened it, such as a workflow's uid."""
    owner: str = ""
    """The mark of the process that carries it."""

    @property
    def engines(self) -> tuple[str, str | None]:
        """As regions name what is delivered and what served before."""
        return self.on_trial or self.version, self.in_production or self.champion


class GoldenSet(Value):
    """A set of prompts by its name and SHA-256; its content never leaves the spec's folder for a registry's list."""

    name: str
    digest: Digest


class StoredRun(Value):
    """An MLflow run as its store gives it. Times are in milliseconds since 1970."""

    id: str
    status: str
    started: int
    ended: int | None
    artifacts: str
    """The address of its artifacts."""
    tags: Mapping[str, str]
    params: Mapping[str, str] = {}
    is_deleted: bool = False
    """It can be read and restored; lists leave it out, and nothing is written to it."""

    def file(self, path: str) -> str:
        """The address of a file or folder of its artifacts."""
        return f"{self.artifacts.rstrip('/')}/{path}".rstrip("/")


class StoredVersion(Value):
    """A model version as its store gives it, no matter who registered it."""

    name: str
    version: str
    tags: Mapping[str, str]
    run: str = ""
    """The id of the run that logged its files, where that is known."""
    logged: str = ""
    """The id of its logged model, where it has one."""

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return ModelVersion.uri_of(self.name, self.version)


class PendingFiles(Value):
    """A logged model whose files become a version, or may."""

    id: str
    address: str
    """Where the files are put."""

    @property
    def source(self) -> str:
        """As the version names it."""
        return f"models:/{self.id}"


class Survey(Value):
    """Which of a version's files are served, and under which names: what adopting it would read."""

    uri: str
    """Of the version, as MLflow writes it."""
    address: str
    """Of the version's files, as the store gave it."""
    folders: tuple[str, ...]
    """Laid over each other, the first on top; "" is the version's own folder."""
    places: Mapping[str, str]
    """The path among the version's files, by the path that is served."""
    sizes: Mapping[str, int]
    """Bytes of each, by the path that is served."""
    left_out: tuple[str, ...] = ()
    """In these folders, and not served: code, and what may hold pickled objects."""

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(self.sizes.values())
