"""From the survey of a cluster to the draft of a delivery. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelines.draft.engine import put_engine, served_by
from pipelines.draft.fleet import put_fleet
from pipelines.draft.misfits import note_misfits
from pipelines.draft.model import Draft, DraftNoteKind, Sketch
from pipelines.draft.regions import region_name
from rollouts.manifests.conventions import LONGEST_NAME, canary_service, stable_service
from rollouts.survey.model import Router, ServingSurvey
from tidegate.core.errors import UsageError
from tidegate.core.spec import NAME

USUAL_WEIGHTS = [5, 25, 50]
_LONGEST_NAME = LONGEST_NAME - len(canary_service(""))
_LATER = (
    "TODO: once golden.jsonl (questions with known answers) is there, put this first, and `quality` into `gates`:",
    "  - offline: {dataset: golden.jsonl, gates: [quality]}",
    "  - shadow: {percent: 100, at_least: 5m, within: 30m, gates: [latency, errors]}",
    "`tidegate init FOLDER` writes one to start from.",
)
_LATER_GATES = ("quality: {scorer: contains, max_drop: 0.05}",)
_TRAFFIC = (
    "TODO: requests of one region, so that `tidegate plan` can say how long each gate takes. vLLM counts them:",
    "  sum(rate(vllm:request_success_total[1h]))",
    "traffic: {requests_per_second: 20}",
)


def draft_delivery(lead: ServingSurvey, *, name: str = "", adopting: bool = False) -> Draft:
    """A delivery to where this Rollout is, next to it.

    Args:
        lead: the survey of the Rollout; its cluster is the only region.
        name: of the delivery; chosen when empty.
        adopting: whether it is to take the Rollout over instead; then it has its name.

    Raises:
        UsageError: the name is none, is too long, or is taken.
    """
    sketch, region = Sketch(), region_name(lead)
    free = _named(name, lead) if name and not adopting else ""
    chosen = _adopted(name, lead) if adopting else free or _chosen(lead)
    sketch.put("apiVersion", "tidegate/v1")
    sketch.put("kind", "Delivery")
    _put_names(sketch, chosen, lead, adopting=adopting)
    put_engine(sketch, lead)
    _put_gates(sketch)
    _put_stages(sketch, lead)
    sketch.put("regions.waves", [[region]], "the first wave is one region: users of the others see no bad version")
    sketch.put("regions.bake", "30m", "how long a wave serves everybody before the next one begins")
    put_fleet(sketch, region, lead, chosen)
    if adopting and lead.traffic.router is Router.HTTP_ROUTE and lead.traffic.route != chosen:
        sketch.put("fleet.gateway.route", lead.traffic.route, f"users of {lead.subject} are led by it, and stay there")
    sketch.below("fleet", ("", *_TRAFFIC))
    for what in lead.unread:
        sketch.note(DraftNoteKind.UNREAD, region, what, "what it says is missing in the draft; ask someone who may")
    note_misfits(sketch, lead, adopting=adopting)
    return sketch.finished()


def _named(name: str, lead: ServingSurvey) -> str:
    if not re.fullmatch(NAME, name) or len(name) > _LONGEST_NAME:
        expected = f"lower case letters, digits and dashes, at most {_LONGEST_NAME} characters"
        raise UsageError(f"--name: found {name!r}; expected {expected}")
    if taken := _taken(name, lead):
        raise UsageError(
            f"--name: {taken} is there already in {lead.namespace}, and is not tidegate's",
            hint="give a name that nothing has there",
        )
    return name


def _adopted(name: str, lead: ServingSurvey) -> str:
    """The name of the Rollout that is taken over, which the delivery has too."""
    if name not in {"", lead.name}:
        raise UsageError(f"--name: found {name!r}; expected {lead.name}, the Rollout's own, with --adopt")
    if len(lead.name) > _LONGEST_NAME:
        expected = f"a name of at most {_LONGEST_NAME} characters, which Services get an end of"
        raise UsageError(f"--adopt: found {lead.subject}; expected {expected}")
    return lead.name


def _taken(name: str, lead: ServingSurvey) -> str:
    """An object that stands where a delivery of this name would have one of its own; empty when there is none."""
    needed = {f"Service {stable_service(name)}", f"Service {canary_service(name)}"}
    for said in sorted(lead.taken):
        kind, _, other = said.partition(" ")
        if said in needed or (kind != "Service" and other == name):
            return said
    return ""


def _chosen(lead: ServingSurvey) -> str:
    return next(each for each in _candidates(lead) if not _taken(each, lead))


def _candidates(lead: ServingSurvey) -> Iterator[str]:
    """The name that requests carry, since engines answer to the delivery's; then the workload's; then any."""
    served = served_by(lead.pod.engine).command.served_name
    if re.fullmatch(NAME, served) and len(served) <= _LONGEST_NAME:
        yield served
    yield lead.name[:_LONGEST_NAME]
    stem = lead.name[: _LONGEST_NAME - len("-tidegate-99")].rstrip("-")
    yield f"{stem}-tidegate"
    yield from (f"{stem}-tidegate-{number}" for number in range(2, 100))


def _put_names(sketch: Sketch, name: str, lead: ServingSurvey, *, adopting: bool) -> None:
    command = served_by(lead.pod.engine).command
    next_to = f"tidegate's objects get this name, in {lead.namespace} next to {lead.subject}, which it does not touch"
    over = f"that of {lead.subject} in {lead.namespace}, which `tidegate rollout adopt` takes over"
    sketch.put("metadata.name", name, over if adopting else next_to)
    asked = command.served_name or command.model or "(not said by the pod)"
    if asked != name:
        sketch.unsupported(
            "name of the model in requests",
            f"requests carry `model: {asked}`; engines of tidegate answer to the delivery's name, {name}",
            "let callers send that name, or free it and give it with --name",
        )
    sketch.decide(
        "model",
        {"name": name, "from": "challenger", "to": "champion"},
        "the registered model of MLflow whose versions serve, and its aliases",
        "docs/start/cluster-quickstart.md, step 3: register what serves now as champion",
    )


def _put_gates(sketch: Sketch) -> None:
    sketch.decide(
        "gates.latency",
        {"metric": "ttft", "quantile": 0.95, "max_increase": "20%"},
        "how much slower a version may be. 20 % is what most users do not notice, and less takes many more requests",
        "docs/guides/planning.md",
    )
    sketch.decide(
        "gates.errors",
        {"max_increase": "0.5pp"},
        "how many more requests may fail. 0.5 points are half of what an objective of 99 % allows in all",
        "docs/guides/planning.md",
    )
    sketch.below("gates.errors", _LATER_GATES)


def _put_stages(sketch: Sketch, lead: ServingSurvey) -> None:
    weights, why = list(lead.strategy.weights), f"weights from the steps of {lead.subject}"
    if not weights:
        weights, why = (
            USUAL_WEIGHTS,
            f"weights: {lead.subject} has no steps; a few users first, then a quarter, then half",
        )
    stage = {"weights": weights, "within": "1h", "gates": ["latency", "errors"]}
    sketch.put(
        "stages", [{"canary": stage}], f"{why}. A gate, not a pause, ends each; `within` is the longest it may take"
    )
    sketch.below("stages", _LATER)
