"""Evaluations that are kept from one delivery to the next, a file for each engine and all that it is asked."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from gates.analyses.outside.answer import AskedArm
from gates.analyses.outside.evaluation import Evaluation
from gates.analyses.outside.evaluation_spec import EvalGate
from gates.errors import NotAnswered
from tidegate.core.files import replace_file
from tidegate.core.model import Value

FORMAT = "tidegate/evaluation/1"
ASKED = ("task", "run", "api", "model_args", "arguments", "limit", "metric", "filter")
"""Settings by which the same engine may get other scores."""


class _Kept(Value):
    format: str
    digest: str
    """Of the evaluation as JSON: a file that was cut, or changed by hand, is none."""
    evaluation: Evaluation


class KeptEvaluations:
    """Scores and hashes; never a question, never an answer."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first that is kept."""
        self._folder = folder

    def path(self, key: str) -> Path:
        """Where an evaluation is kept."""
        return self._folder / f"{key}.json"

    def find(self, key: str) -> Evaluation | None:
        """What is kept; None for nothing, and for what nobody of us has written."""
        try:
            kept = _Kept.model_validate_json(self.path(key).read_bytes())
        except (OSError, ValidationError):
            return None
        whole = kept.format == FORMAT and kept.digest == _digest(kept.evaluation.model_dump_json())
        return kept.evaluation if whole else None

    def keep(self, key: str, evaluation: Evaluation) -> None:
        """Keep it, in one step.

        Raises:
            OSError: the disk does not take it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = _Kept(format=FORMAT, digest=_digest(evaluation.model_dump_json()), evaluation=evaluation)
        replace_file(self.path(key), kept.model_dump_json())


def evaluation_key(arm: AskedArm, model: str, settings: EvalGate, folder: Path) -> str:
    """The same where the same engine is asked the same: by what makes the engine, the gate's settings, and its files.

    Raises:
        NotAnswered: one of the files is not in `folder`, the spec's.
    """
    files = {str(path): _digest_of_file(folder / path) for path in sorted(settings.files)}
    asked = settings.model_dump(mode="json", include=set(ASKED))
    said = {"format": FORMAT, "engine": arm.engine, "model": model, "asked": asked, "files": files}
    return _digest(json.dumps(said, sort_keys=True))


def _digest_of_file(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        message = f"{path.name} of `files`: {(error.strerror or 'unreadable').lower()}"
        raise NotAnswered(message, again=False, hint="put it into the spec's folder") from error


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
