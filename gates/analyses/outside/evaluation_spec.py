"""What a spec says of a task of lm-evaluation-harness, or of a program that is called as it is and writes its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from gates.analyses.outside.spec import ProgramGate, Words
from tidegate.core.durations import Duration
from tidegate.core.model import SpecConflict

OWN_ARGUMENTS = ("--model", "--model_args", "--tasks", "--limit", "--output_path", "--log_samples")
"""Those that tidegate writes itself."""
OWN_MODEL_ARGS = ("base_url", "model")
ModelArgument = bool | int | float | Annotated[str, Field(pattern=r"^[^,=\s]+$", max_length=1000)]


class EvalGate(ProgramGate):
    """Scores of both arms on one task of lm-evaluation-harness, question by question."""

    task: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")
    """A task, or a group of some, as `lm_eval` names it."""
    run: Words = Field(default=("lm_eval",), min_length=1)
    """Program, with arguments that come first, such as `[/opt/eval/bin/python, -m, lm_eval]`; it runs in the spec's
    folder, once for each arm."""
    within: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=1))
    """For both arms and all tries together."""
    api: Literal["completions", "chat"] = "completions"
    """Which interface it asks; tasks of several choices need `completions`."""
    model_args: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ModelArgument] = {}
    """More of `--model_args`, such as `tokenizer` and `num_concurrent`."""
    arguments: Words = ()
    """More arguments, such as `[--include_path, tasks, --num_fewshot, "5"]`."""
    limit: int | None = Field(default=None, ge=1, le=100_000)
    """Questions of each task, the first ones; all where nobody says."""
    metric: str | None = Field(default=None, min_length=1)
    """Which number of a question is its score, 0 to 1; the only one where nobody says."""
    filter: str | None = Field(default=None, min_length=1)
    """Which filter's answers are scored; the only one where nobody says."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Arguments that tidegate writes itself, and fewer questions than a pass needs."""
        yield from super().contradictions()
        for place, said in enumerate(self.arguments):
            if (name := said.partition("=")[0]) in OWN_ARGUMENTS:
                yield SpecConflict(("arguments", place), name, "another argument: this one follows from the gate")
        for name in self.model_args:
            if name in OWN_MODEL_ARGS:
                yield SpecConflict(("model_args", name), name, "another name: this one follows from the arm")
        if self.limit is not None and self.limit < self.min_pairs:
            expected = f"{self.min_pairs} or more, which is `min_pairs`"
            yield SpecConflict(("limit",), str(self.limit), expected)
