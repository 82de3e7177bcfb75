"""A version that only users' own questions tell from the champion: judged on samples that pods of both arms keep.

In canary each arm has users of its own. In shadow the gateway copies requests: only where it leaves a copy the id of
its request do both arms keep the same ones, and without pairs there is no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from cluster.bed import Bed
from cluster.delivered_model import GATES, DeliveredModel
from cluster.engine.server import own_words
from cluster.stories import Told, delivers, late, told_of
from fakes.services.chat_servers import OpenAIServer, openai_server
from fakes.waiting import until

from rollouts.errors import NotFound
from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.conventions import PORT, samples_request

SECRET = "saddle"
THINGS = ("parcel", "refund", "invoice", "voucher", "battery", "charger", "helmet", "saddle", "pedal", "mirror")
USERS_ASK = tuple(f"my {thing} {number} is lost?" for number, thing in enumerate(THINGS))
"""The golden set asks for differences."""


CANARY = {"canary": {"weights": [50], "within": "8m", "gates": ["latency", "errors", "judge"]}}
SHADOW = {"shadow": {"at_least": "5s", "within": "8m", "gates": ["errors", "judge"]}}


def _spec(judge: OpenAIServer, stage: Mapping[str, Any]) -> dict[str, Any]:
    """No gate but the judge can tell the versions apart."""
    control = {"share": "50%", "min_asked": 8}
    asked = {"endpoint": f"{judge.url}/v1", "model": "judge", "max_drop": 0.3, "min_pairs": 10, "control": control}
    return {
        "gates": {**GATES, "judge": asked},
        "stages": [{"offline": {"dataset": "golden.jsonl", "gates": ["quality"]}}, stage],
        "samples": {"share": "100%", "words": [SECRET]},
    }


def forgetful(bed: Bed, name: str, stage: Mapping[str, Any]) -> Told:
    """It answers users as if they had asked nothing, and the golden set as ever; the one after it is well again."""
    with openai_server() as judge:
        right = {prompt.replace(SECRET, "[word]"): "".join(own_words(prompt)) for prompt in USERS_ASK}
        judge.judge.worth = lambda question, answer: 0.9 if right[question] in answer else 0.2
        model = DeliveredModel(bed, name, [[next(iter(bed.around.clusters))]])
        model.change(**_spec(judge, stage))
        first = model.version("champion", own_words=True)
        model.serve(first)
        with model.users(prompts=USERS_ASK):
            bad = model.version(own_words=True, forgets="lost")
            delivers(model, 1, "rolled-back")
            assert "gate judge: canary scores" in (model.delivery().reason or ""), model.delivery().reason
            seconds = late(model, bad)
            _nothing_is_left(model)
            model.exactly(first)
            good = model.version(own_words=True)
            done = delivers(model, 0, "delivered")
            model.exactly(good, previous=first)
            _nothing_is_left(model)
        asked = str(judge.bodies)
        assert SECRET not in asked and "my [word] 7 is lost?" in asked
    _nobody_wrote_down(model)
    return told_of(model, f"exit {done.code}", note=f"the bad one: last user {seconds:+.2f} s from the verdict")


def _nothing_is_left(model: DeliveredModel) -> None:
    """No pod keeps or holds a sample, and nothing asks for any; some were taken."""
    (region,) = model.regions
    with suppress(NotFound):
        left = model.bed.ask(region, lambda client: client.get(CONFIG_MAPS, samples_request(model.name)))
        raise AssertionError(f"still asked for: {left['metadata']['name']}")
    states = {pod: _status(model, region, pod) for pod in model.pods(region)}
    assert all((each["on"], each["held"]) == (False, 0) for each in states.values()), states
    assert sum(each.get("taken", 0) for each in states.values()) > 0, states


def _status(model: DeliveredModel, region: str, pod: str) -> Mapping[str, Any]:
    path = f"/api/v1/namespaces/{model.bed.namespace}/pods/{pod}:{PORT}/proxy/tidegate/status"
    asked: list[Mapping[str, Any]] = []

    def told() -> bool:
        with suppress(NotFound):
            said = model.bed.ask(region, lambda client: client.text(path))
            asked.append(json.loads(said)["samples"])
            return True
        # It went meanwhile, and with it what it had.
        asked.append({"on": False, "held": 0})
        return True

    until(f"{pod} says what it keeps", told)
    return asked[-1]


def _nobody_wrote_down(model: DeliveredModel) -> None:
    """No file of the delivery has what a user asked."""
    files = [path for path in (model.folder / "state").rglob("*") if path.is_file()]
    assert files
    told = [path for path in files if any(text.encode() in path.read_bytes() for text in USERS_ASK)]
    assert told == []


TOGETHER = {
    name: partial(forgetful, name=name, stage=stage) for name, stage in (("forgetful", CANARY), ("shadowed", SHADOW))
}
