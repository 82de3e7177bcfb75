"""The spec with which a delivery was opened, for commands that need nothing else of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.kept_files import SPEC, bring_spec
from pipelines.ports import Event
from pipelines.recorded import plan_of, spec_file_of
from pipelines.resolved import refuse_other_files
from pipelines.spec import Delivery
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.digests import digest_files
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec


def kept_spec(deliveries: MlflowDeliveries, delivery: str, events: Sequence[Event]) -> Delivery:
    """Bring and read it; what it names is brought and compared, and not read.

    Raises:
        UsageError: it was not kept.
        NotAsPlanned: it is not that with which the delivery was opened.
    """
    spec_file = spec_file_of(events)
    if spec_file is None:
        raise UsageError(f"the spec of delivery {delivery} was not kept", hint="deliver the version again")
    with TemporaryDirectory(prefix="tidegate-") as folder:
        path = bring_spec(deliveries, delivery, spec_file, Path(folder))
        refuse_other_files(plan_of(events).resolved, digest_files(Path(folder) / SPEC), spec_file, delivery)
        return load_spec(path, Delivery)
