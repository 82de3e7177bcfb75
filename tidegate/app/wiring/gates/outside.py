"""Whom gates ask outside, by their settings."""

from __future__ import annotations

import os
from pathlib import Path

from gates.analyses.outside.answer import OutsideSource
from gates.analyses.outside.spec import AskedOutside, CommandGate, WebhookGate
from pipelines.run.context import OutsideSources


def outside_sources(folder: Path, kept: Path) -> OutsideSources:
    """Commands run in `folder`, the spec's; what is said is kept below `kept`."""

    def source(settings: AskedOutside) -> OutsideSource:
        match settings:
            case CommandGate():
                from gates.adapters.outside.command import AskedCommand

                return AskedCommand(settings, folder, os.environ)
            case WebhookGate():
                from gates.adapters.outside.webhook import Webhook

                return Webhook(settings, os.environ)
            case _:
                raise AssertionError(f"nobody is asked for {type(settings).__name__}")

    return OutsideSources(source=source, folder=kept)
