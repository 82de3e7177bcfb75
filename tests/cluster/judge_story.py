"""A team keeps its Rollout as the page says, and its AnalysisRuns ask the judge: two pods, and one of them dies.

The page's four steps are read off the page: the values of `helm install`, the PodMonitor, the strategy. The simulated
controller begins no analysis: a step that asks is a pause here, the stand-in of its `web` metric measures, and what a
Rollout does with the phase of a run (goes on, is aborted) is done by kubectl. Flagger's six hooks ask beside it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import yaml
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.others import kubectl
from cluster.quickstart import merged
from cluster.quickstart_story import NAME, ROOT, their_rollout, unharmed
from cluster.stories import BACK_SECONDS, Told
from cluster.their_rollout import TheirRollout
from cluster.users import told
from fakes.argo.web_metric import AnalysisRun
from fakes.services.flagger import Canary
from fakes.services.helm import helm, objects
from fakes.waiting import until

from tidegate.core.model import Json

JUDGE = "tidegate-judge"
CHART = ROOT / "examples/helm/tidegate-judge"
PAGE = (ROOT / "docs/start/keep-your-rollout.md").read_text(encoding="utf-8")
MONITOR, STRATEGY = (
    yaml.safe_load(body) for body in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
CANARY = STRATEGY["strategy"]["canary"]
WATCH, PASS = (each["templates"][0]["templateName"] for each in (CANARY["analysis"], CANARY["steps"][1]["analysis"]))
HOOKS = ("pre-rollout", "rollback", "rollout", "confirm-traffic-increase", "confirm-promotion", "post-rollout")
GATES = {"budget": {"poll_interval": "15s"}, "latency": {"metric": "ttft", "quantile": 0.5, "max_increase": "50%"}}
INTERVAL_SECONDS = 10
PROMOTED, ABORTED = '{"status": {"promoteFull": true}}', '{"status": {"abort": true}}'


class TheirJudgedRollout(TheirRollout):
    """What the page adds to it."""

    def _monitor(self, label: str) -> Json:
        found: Json = merged(super()._monitor(label), MONITOR)
        return found

    def _rollout(self, version: str) -> Json:
        steps = [{"pause": {}} if "analysis" in each else each for each in CANARY["steps"]]
        found: Json = merged(super()._rollout(version), {"strategy": {"canary": {**CANARY, "steps": steps}}})
        return found


class Judged:
    """The chart's objects in a region, and runs that ask them as a controller in the cluster would."""

    def __init__(self, bed: Bed, region: str) -> None:
        self.bed, self.region = bed, region
        there = bed.around.clusters[region]
        own = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["gates"]
        places = {"image": bed.toolchain, "prometheus": there.prometheus_inside}
        values = {name: places[name] for name in re.findall(r"--set (\w+)=", PAGE)} | {"gates": {**own, "gates": GATES}}
        made = objects(helm(CHART, values, JUDGE, namespace=bed.namespace)["files"])
        self.kubectl("apply", "-f", "-", given=json.dumps({"kind": "List", "apiVersion": "v1", "items": made}))
        self.templates = {each["metadata"]["name"]: each for each in made if each["kind"] == "ClusterAnalysisTemplate"}
        (secret,) = (each for each in made if each["kind"] == "Secret")
        self.token = self.kubectl(
            "get", "secret", secret["metadata"]["name"], "-o", "go-template={{.data.token | base64decode}}"
        )
        self.kubectl("rollout", "status", f"deployment/{JUDGE}", "--timeout=240s")
        # Surroundings forward to port 80 of a Service.
        self.kubectl("expose", f"deployment/{JUDGE}", "--name", f"{JUDGE}-here", "--port=80", "--target-port=8095")
        self.address = bed.forward(region, f"{JUDGE}-here")
        until("the judge can be reached", self.answers)

    def kubectl(self, *words: str, given: str = "") -> str:
        return kubectl(self.bed, self.region, *words, given=given)

    def run(self, template: str, arms: Mapping[str, str]) -> AnalysisRun:
        return AnalysisRun(self.templates[template], {"token": self.token, **arms}, self.send)

    def yes(self, arms: Mapping[str, str]) -> set[str]:
        """The hooks that Flagger takes for a yes."""
        both = {name: arms[name] for name in ("stable", "canary")}
        url = f"http://flagger:{self.token}@{JUDGE}/v1/flagger/"
        webhooks = [{"type": hook, "url": f"{url}{hook}", "metadata": both} for hook in HOOKS]
        metadata = {"name": arms["service"], "namespace": self.bed.namespace}
        canary = Canary({"metadata": metadata, "spec": {"analysis": {"webhooks": webhooks}}}, "", self.send)
        for hook in HOOKS:
            canary.ask(hook)
        return {hook for hook, status in canary.asked if status == 200}

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """By the name that the template has, at the address by which this machine reaches it."""
        parts = urlsplit(url)
        asked = Request(f"{self.address}{parts.path}", body or None, {**headers, "Host": parts.netloc}, method=method)
        try:
            with urlopen(asked, timeout=20) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    def answers(self) -> bool:
        """Not at once: the addresses of a Service follow its pods."""
        with suppress(OSError):
            return self.send("GET", f"http://{JUDGE}/healthz", {}, b"")[0] == 200
        return False

    def arms(self) -> dict[str, str]:
        """The strategy's arguments, which the controller gives the pod template hashes."""
        status = self.rollout()["status"]
        hashes = {"Stable": status["stableRS"], "Latest": status["currentPodHash"]}
        args = CANARY["analysis"]["args"]
        return {each["name"]: each.get("value") or hashes[each["valueFrom"]["podTemplateHashValue"]] for each in args}

    def rollout(self) -> Json:
        found: Json = json.loads(self.kubectl("get", f"rollout/{NAME}", "-o", "json"))
        return found

    def until_canary(self) -> dict[str, str]:
        until("the canary has users", lambda: self.rollout()["status"].get("currentStepIndex") == 1)
        return self.arms()


def ended(run: AnalysisRun) -> str:
    """Its phase, measured at the controller's interval until it is over, ten minutes at most."""
    for _ in range(60):
        if run.measure() != "Running":
            break
        time.sleep(INTERVAL_SECONDS)
    return run.phase


def judged(bed: Bed) -> Told:
    """A good version passes by what either pod says, a late one fails; a wrong label is told at the first question."""
    region = next(iter(bed.around.clusters))
    with bed.apart("judged") as regions:
        model = DeliveredModel(regions, NAME, [[region]])
        with their_rollout(regions, region, model, kind=TheirJudgedRollout) as theirs:
            judge = Judged(regions, region)
            with unharmed(regions, region, model, rate=20):
                theirs.apply("2")
                arms = judge.until_canary()
                wrong = judge.run(PASS, nobody := {**arms, "stable": "nobody"})
                assert wrong.measure() == "Running"
                assert judge.yes(nobody) == {"post-rollout"}
                assert "no series of stable version nobody" in json.loads(wrong.values[0])["sentence"], wrong.values
                step, watch = judge.run(PASS, arms), judge.run(WATCH, arms)
                assert (ended(step), watch.measure()) == ("Successful", "Running"), step.values[-1]
                assert judge.yes(arms) == {*HOOKS} - {"rollback"}
                one, *_ = judge.kubectl("get", "pods", "-l", f"app={JUDGE}", "-o", "name").split()
                judge.kubectl("delete", one, "--grace-period=0", "--force")
                judge.kubectl("rollout", "status", f"deployment/{JUDGE}", "--timeout=240s")
                since = json.loads(step.values[-1])["evidence"]["since"]
                for _ in range(6):
                    again = judge.run(PASS, arms)
                    again.measure()
                    said = json.loads(again.values[-1])
                    assert (said["outcome"], said["evidence"]["since"]) == ("pass", since), said
                judge.kubectl("patch", f"rollout/{NAME}", "--subresource=status", "--type=merge", "-p", PROMOTED)
                until("it is stable", lambda: judge.arms()["stable"] == arms["canary"])
                theirs.apply("3")
                arms = judge.until_canary()
                late = judge.run(WATCH, arms)
                assert ended(late) == "Failed", late.values[-1]
                assert judge.yes(arms) == {"pre-rollout", "rollback", "post-rollout"}
                verdict = model.now()
                judge.kubectl("patch", f"rollout/{NAME}", "--subresource=status", "--type=merge", "-p", ABORTED)
                until("users are back", lambda: judge.rollout()["status"].get("phase") == "Degraded")
                seconds = max((one.started for one in model.asked() if one.version == "3"), default=verdict) - verdict
                assert seconds <= BACK_SECONDS, seconds
    sentence = json.loads(late.values[-1])["sentence"]
    note = (
        f"passed at look {len(step.values)}, failed at look {len(late.values)}: {sentence}; last user {seconds:+.2f} s"
    )
    return Told(ending="passed, failed", users=told(model.asked()), note=note)


ALONE = {"judged": judged}
