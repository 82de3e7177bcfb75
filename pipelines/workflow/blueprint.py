"""Everything that a rendered workflow is made of."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from pipelines.model import Step
from pipelines.spec import Delivery
from pipelines.workflow.spec import WorkflowSpec
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Value


class Blueprint(Value):
    """A spec, the steps of its deliveries, and the files that go with them."""

    spec: Delivery
    fleet: ArgoFleetSpec
    settings: WorkflowSpec
    steps: tuple[Step, ...]
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
    def engine_key(self) -> str:
        """Changes with everything of the spec that an engine image depends on."""
        assert self.settings.build is not None, "nobody builds here"
        parts = self.spec.engine.model_dump_json(), self.settings.build.model_dump_json(), self.spec.model.name
        return sha256("\n".join(parts).encode()).hexdigest()[:12]
