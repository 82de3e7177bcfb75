"""Names that tidegate writes into MLflow, in one place, so that other tools can rely on them."""

from __future__ import annotations

import re

from tidegate.core.errors import UsageError

_URI = re.compile(r"models:/(?P<name>[^/:]+)(?:/(?P<version>[0-9]+)|@(?P<alias>[^/:@]+))")
_ALIAS = re.compile(r"[\w-]{1,255}")
_RESERVED = re.compile(r"latest|v\d+", re.IGNORECASE)

DIGEST = "tidegate.digest"
"""Of a model version: the SHA-256 of its `SUMS`."""
SIZE = "tidegate.size_bytes"
SUMS = "SHA256SUMS"
"""The file with the digests of a version's files, as `sha256sum -c` reads it: next to them, or where `ADOPTED` says."""
ADOPTED = "tidegate.adopted"
"""Of a version whose files are somebody else's, as JSON: `sums`, the address of its `SUMS`, and `folders`, those of its
artifacts that are served; the first lies on top."""
SOURCE = "tidegate.source"
"""Of a version that was registered from elsewhere: where its files come from, such as `hf://ORG/NAME@COMMIT`."""
ENGINE_IMAGE = "tidegate.engine.image"
"""Of a model version: the pushed image of its engine, by digest: what clusters serve the version from."""
SERVING_TAG = "tidegate.serving"
"""Of a model version: a `registry.model.Serving`, as JSON."""
DELIVERY = "tidegate.delivery"
"""Of a model version: the id of the run that records its last delivery."""
OUTCOME, REASON = "tidegate.outcome", "tidegate.reason"
"""Of a delivery, and of the model version that it was about."""

EVENT_PREFIX = "mlflow.tidegate.event."
"""MLflow's UI does not list tags that begin with `mlflow.`; dozens of events would bury the others."""
REGION_PREFIX = "tidegate.region."
"""One tag for each region: the last step there and what became of it."""
MODEL = "tidegate.model"
VERSION = "tidegate.version"
CHAMPION = "tidegate.champion"
"""The version that served when the delivery began."""
ON_TRIAL, IN_PRODUCTION = "tidegate.engine.on_trial", "tidegate.engine.in_production"
"""Of a delivery: the names of its engines, where these are not the numbers of their model versions."""
HEARTBEAT = "tidegate.heartbeat"
"""ISO 8601, UTC: when the process last said that it lives."""
CARRIER = "tidegate.carrier"
"""Who opened a delivery, a `registry.ownership.Carrier` as JSON."""
OWNER_PREFIX = "tidegate.owner."
"""Parameters, which MLflow lets nobody set again: the same of those who carried it on, one after the other; the last
one does."""
STATE = "tidegate.state"
"""`running`, or the outcome once there is one."""
LAST_STEP = "tidegate.last_step"
NOT_ENDED = "RUNNING"
"""MLflow's status of a run that nobody has ended."""
NOTE = "mlflow.note.content"
"""MLflow's own tag for the description that its UI renders as Markdown."""

MODEL_FOLDER = "model"
"""The Hugging Face directory inside a model version's artifacts, and inside an engine's folder."""
MOST_ARTIFACT_BYTES = 64 * 1024 * 1024
"""Of one file that is kept with a delivery: its spec, what that names, a transcript."""

_NOT_IN_MODEL_NAMES = frozenset("/:%'\"`\\")
LONGEST_NAME = 200
"""Of a model, in characters; MLflow keeps 256 of an experiment's name, which has more in front."""
MOST_VERSIONS = 2**31 - 1
"""The highest number that every store keeps."""


def experiment_name(model: str) -> str:
    """The MLflow experiment that holds a model's logged versions and its deliveries."""
    return f"tidegate/{model}"


def in_filter(name: str) -> str:
    """A text as MLflow's filters take it; they know no escapes.

    Raises:
        UsageError: it would say something else there.
    """
    if not set(name).isdisjoint("'\"`\\"):
        raise UsageError(f"`{name}` is no name of a model", hint="names have no quotes and no backslashes")
    return f"'{name}'"


def refuse_name(name: str) -> None:
    """Be sure that a text may be a registered model's name, in MLflow and in its filters, addresses and experiments.

    Raises:
        UsageError: it may not.
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    if name in ("", ".", "..") or name.isspace() or len(name) > LONGEST_NAME or shown != name:
        problem = f"expected 1 to {LONGEST_NAME} characters that can be printed, and more than dots"
    elif bad := sorted(_NOT_IN_MODEL_NAMES & set(name)):
        problem = f"MLflow takes no {bad[0]} in names of models"
    else:
        return
    raise UsageError(f"`{shown}` is no name of a model: {problem}", hint="name it in letters, digits, - and _")


def is_version_number(text: str) -> bool:
    """Whether it says a version by its number, and not an alias."""
    return text.isascii() and text.isdecimal()


def alias_problem(name: str) -> str | None:
    """Why MLflow takes no alias of that name; None when it does."""
    if not _ALIAS.fullmatch(name):
        return "no name of an alias, which has letters, digits, - and _"
    if _RESERVED.fullmatch(name) or name.isdecimal():
        return "a name that MLflow keeps for versions"
    return None


def refuse_alias(name: str) -> None:
    """Be sure that MLflow takes an alias of that name.

    Raises:
        UsageError: it does not.
    """
    if problem := alias_problem(name):
        raise UsageError(f"alias `{name}`: {problem}", hint="such as challenger, champion, production")


def name_and_reference(uri: str) -> tuple[str, str]:
    """A model's name, and the version or alias that is meant: of models:/NAME/VERSION or models:/NAME@ALIAS.

    Raises:
        UsageError: it is neither.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise UsageError(f"`{uri}` names no model version", hint="write models:/NAME/VERSION or models:/NAME@ALIAS")
    return found["name"], found["version"] or found["alias"]
