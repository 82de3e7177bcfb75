"""The input of a rendered workflow, the names that its objects, its submitter and its watchers share, and its runs."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from pipelines.model import PlanStep
from pipelines.spec.delivery import Delivery
from pipelines.spec.workflow import WorkflowSpec
from rollouts.errors import NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import WORKFLOW_TEMPLATES, WORKFLOWS
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY as DELIVERY_LABEL
from tidegate.core.names import MANAGED_BY

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
SECRETS_FOLDER = "/secrets"
"""Where they find the Secrets that the spec names: each a folder, and each of its keys a file."""

SIGN_KEY, LEDGER_KEY = "engine.key", "ledger.key"
"""The names of keys in their Secrets: of engines, and of what steps write."""

STEPS_OF = "tidegate.dev/steps-of"
"""On the workflow's pods, which no selector of engines may match: the delivery's name."""

USER = 10001
"""Whom containers run as."""


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
"""The key with which the delivery is opened, and found by the one who closes it."""


class WorkflowInput(Value):
    """A spec, the steps of its deliveries, and the files that go with them."""

    spec: Delivery
    fleet: ClusterFleetSpec
    settings: WorkflowSpec
    steps: tuple[PlanStep, ...]
    """Of the plan, in its order."""
    spec_file: str
    """Where the spec lies among the files."""
    files: Mapping[str, str]
    """Their texts by their places: the spec, and what it names."""

    @property
    def name(self) -> str:
        """Of the delivery, and of its WorkflowTemplate."""
        return self.spec.metadata.name

    @property
    def namespace(self) -> str:
        """Where workflows run."""
        return self.settings.namespace or self.fleet.namespace

    @property
    def secrets(self) -> Mapping[str, tuple[str, ...]]:
        """Secrets that Prometheus and the Git repository ask for, each with the keys that are read; by name."""
        keys: dict[str, set[str]] = {}
        sources = [source for region in self.fleet.regions.values() for _, source in region.prometheus.sources()]
        sources += [self.spec.git.auth.password] if self.spec.git and self.spec.git.auth else []
        for source in sources:
            if source.secret:
                keys.setdefault(source.secret.name, set()).add(source.secret.key)
        return {name: tuple(sorted(keys[name])) for name in sorted(keys)}

    @property
    def engine_key(self) -> str:
        """Changes with everything of the spec that an engine image depends on."""
        assert self.settings.build is not None, "nobody builds here"
        # An engine that is built has neither, and keys of before them stay as they were.
        # How pods are told to meet another machine changes nothing of what is built.
        engine = self.spec.engine.model_dump_json(
            exclude={"image": True, "weights": True, "compile": {"mismatch": True}}
        )
        parts = engine, self.settings.build.model_dump_json(), self.spec.model.name
        return sha256("\n".join(parts).encode()).hexdigest()[:12]


def workflow(template: str, namespace: str, *, version: str) -> Json:
    """The object to create; the server adds a few letters to its name.

    `template` is the WorkflowTemplate's name, which is the delivery's.
    """
    return {
        "apiVersion": WORKFLOWS.api_version,
        "kind": WORKFLOWS.kind,
        "metadata": {
            "generateName": f"{template}-{version}-",
            "namespace": namespace,
            "labels": {
                **MANAGED_BY,
                DELIVERY_LABEL: template,
                # Where the argo command and its server look for a template's workflows.
                "workflows.argoproj.io/workflow-template": template,
            },
        },
        "spec": {
            "workflowTemplateRef": {"name": template},
            "arguments": {"parameters": [{"name": VERSION, "value": version}]},
        },
    }


OVER = frozenset({"Succeeded", "Failed", "Error"})


def is_over(workflow: Json) -> bool:
    """Whether its exit handler has ended too; not for one that its controller has not seen yet."""
    return (workflow.get("status") or {}).get("phase") in OVER


async def submit(cluster: KubeClient, template: str, namespace: str, version: str) -> str:
    """Create a workflow, and return its name.

    Raises:
        UsageError: there is no template.
    """
    try:
        await cluster.get(WORKFLOW_TEMPLATES, template)
    except NotFound as error:
        raise UsageError(
            f"there is no WorkflowTemplate {template} in the namespace {namespace}",
            hint="`tidegate rollout render --as workflow | kubectl apply -f -` brings it",
        ) from error
    wanted = workflow(template, namespace, version=version)
    return str((await cluster.create(WORKFLOWS, wanted))["metadata"]["name"])
