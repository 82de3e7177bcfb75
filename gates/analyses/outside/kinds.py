"""Kinds of gates that are asked outside: once, by their stage, before users meet the version."""

from __future__ import annotations

from gates.analyses.base import GateKind, Settings, StageUse
from gates.analyses.outside.evaluation_spec import EvalGate
from gates.analyses.outside.spec import CommandGate, WebhookGate


class OutsideKind(GateKind[Settings]):
    """Asked where both arms have an address and nobody depends on the canary yet."""

    stages = (StageUse("offline"),)


class CommandKind(OutsideKind[CommandGate]):
    """What a command of the team's says of both arms."""

    name = "command"
    spec = settings = CommandGate


class EvalKind(OutsideKind[EvalGate]):
    """What a task of lm-evaluation-harness finds of both arms."""

    name = "eval"
    spec = settings = EvalGate


class WebhookKind(OutsideKind[WebhookGate]):
    """What a web service of the team's says of both arms."""

    name = "webhook"
    spec = settings = WebhookGate
