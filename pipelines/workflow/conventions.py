"""Names that the rendered objects, whoever submits them and whoever watches them agree on."""

from __future__ import annotations

VERSION, DELIVERY = "version", "delivery"
"""Arguments of a workflow: the model version's number; a delivery to be carried on, empty for a new one."""

DELIVER, REGION, OPEN, STAGE, CLOSE, ENGINE = "deliver", "region", "open", "stage", "close", "engine"
"""Templates, and the tasks of those that are called once."""

STEP, DEADLINE = "step", "deadline"
"""Inputs of the template `stage`: the step's id, and seconds."""

SPEC_FOLDER, STATE_FOLDER, SCRATCH_FOLDER = "/delivery", "/state", "/tmp"
KUBE_FOLDER, LOGIN_FOLDER, SIGN_FOLDER = "/kube", "/login", "/sign"
"""Where containers find the spec, their disks, the kubeconfig, the image registry's credentials, the signing key."""
TRUST_FOLDER, LEDGER_FOLDER = "/trust", "/ledger"
"""Where steps find whom to believe, and the key that signs what they write."""

SIGN_KEY, LEDGER_KEY = "engine.key", "ledger.key"
"""The names of keys in their Secrets: of engines, and of what steps write."""

STEPS_OF = "tidegate.dev/steps-of"
"""On the workflow's pods, which no selector of engines may match: the delivery's name."""

USER = 10001
"""Whom containers run as."""


def account(delivery: str) -> str:
    """The service account of the workflow's pods."""
    return f"{delivery}-workflow"


def files(delivery: str) -> str:
    """The ConfigMap that holds the spec and what it names."""
    return f"{delivery}-spec"


def memory(delivery: str) -> str:
    """The ConfigMap in which Argo Workflows notes which engines were built."""
    return f"{delivery}-engines"


def own_value(name: str) -> str:
    """What Argo Workflows puts there: an input of the template that says it."""
    return f"{{{{inputs.parameters.{name}}}}}"


def argument(name: str) -> str:
    """What Argo Workflows puts there: an argument of the workflow."""
    return f"{{{{workflow.parameters.{name}}}}}"


RESULT = f"{{{{tasks.{OPEN}.outputs.result}}}}"
"""What `tidegate stage open` printed: the delivery's id."""

UID = "{{workflow.uid}}"
"""The key with which the delivery is opened, and found by whoever closes it."""
