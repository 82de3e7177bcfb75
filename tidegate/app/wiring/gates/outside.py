"""Whom gates ask outside, by their settings."""

from __future__ import annotations

import os
from pathlib import Path

from gates.analyses.outside.answer import OutsideSource
from gates.analyses.outside.evaluation_spec import EvalGate
from gates.analyses.outside.spec import AskedOutside, CommandGate, WebhookGate
from pipelines.run.context import OutsideSources


def outside_sources(folder: Path, kept: Path, evaluations: Path) -> OutsideSources:
    """Programs run in `folder`, the spec's; what is said is kept below `kept`, scores for later in `evaluations`."""

    def source(settings: AskedOutside) -> OutsideSource:
        match settings:
            case CommandGate():
                from gates.adapters.outside.command import AskedCommand

                return AskedCommand(settings, folder, os.environ)
            case WebhookGate():
                from gates.adapters.outside.webhook import Webhook

                return Webhook(settings, os.environ)
            case EvalGate():
                from gates.adapters.outside.harness import AskedHarness
                from gates.adapters.outside.kept_evaluations import KeptEvaluations

                return AskedHarness(settings, folder, os.environ, KeptEvaluations(evaluations))
            case _:
                raise AssertionError(f"nobody is asked for {type(settings).__name__}")

    return OutsideSources(source=source, folder=kept)
