"""What was settled when a delivery was opened, and whether what a process is about to do is still that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

from pipelines.errors import NotAsPlanned
from pipelines.model import Plan, Resolved
from pipelines.plan import steps_of
from pipelines.spec import Delivery
from registry.digests import compare


def settings_digest(spec: Delivery) -> str:
    """One digest over the settings of every gate, those included that the spec leaves to their defaults."""
    return sha256(spec.gates.model_dump_json(by_alias=True).encode()).hexdigest()


def refuse_other_files(resolved: Resolved | None, found: Mapping[str, str], spec_file: str, delivery: str) -> None:
    """Say no to kept files that are not those with which the delivery was opened.

    Args:
        resolved: what was settled; without it nothing can be compared.
        found: the digests of all files that were kept, by their places.
        spec_file: the place of the spec among them.
        delivery: its id, for the message.

    Raises:
        NotAsPlanned: a file was changed, added or taken away since, the spec is none of them, or nothing was settled.
    """
    if resolved is None:
        raise NotAsPlanned(
            f"delivery {delivery} was opened by a tidegate that settled nothing", hint="deliver the version again"
        )
    if spec_file not in resolved.files:
        raise NotAsPlanned(f"delivery {delivery}: its spec {spec_file!r} is none of the files it was opened with")
    difference = compare(resolved.files, found)
    if difference:
        raise NotAsPlanned(f"delivery {delivery}: its kept files are not those it was opened with: {difference}")


def refuse_other_plan(plan: Plan, spec: Delivery, *, prompts: int, delivery: str) -> None:
    """Say no to a plan that is not what its spec says: steps, approvals, the settings of gates.

    Raises:
        NotAsPlanned: it is not; names the first difference.
    """
    if plan.resolved is not None:
        for difference in _differences(plan, plan.resolved, spec, prompts):
            raise NotAsPlanned(f"delivery {delivery}: {difference}")


def _differences(plan: Plan, resolved: Resolved, spec: Delivery, prompts: int) -> Iterator[str]:
    if settings_digest(spec) != resolved.gates:
        yield "its gates ask for something else than when it was opened"
    planned = {step.id: step.approvals for step in plan.steps}
    wanted = {step.id: step.approvals for step in steps_of(spec, prompts=prompts)}
    if list(planned) != list(wanted):
        yield "its plan has other steps than its spec"
    for step in planned.keys() & wanted.keys():
        if planned[step] != wanted[step]:
            yield f"its plan asks for other approvals than its spec before {step}"
    if plan.name != spec.metadata.name or plan.version.name != spec.model.name:
        yield "its plan is of another model than its spec"
