"""Each way to break a healthy region is found by its code and by no other, with the objects and fields by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fakes.clusters.doctor_region import CONTROLLER, GPU, GUARD_IMAGE, NAME, PLUGIN, Region, canary, fleet, trial
from fakes.kube.refusal import Refusal
from fakes.kube.store import Kind

from rollouts.doctor.diagnosis import CHECKS
from rollouts.doctor.queries import EvidenceQuery
from rollouts.errors import (
    PrometheusCertificateUntrusted,
    PrometheusCredentialMissing,
    PrometheusCredentialRefused,
    QueryRefused,
    Unreachable,
)
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EXPERIMENTS,
    HTTP_ROUTES,
    NETWORK_POLICIES,
    PODS,
    RESOURCE_QUOTAS,
    ROLLOUTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH
from tidegate.core.names import VERSION, WOKEN

Break = Callable[[Region], object]
STABLE, CANARY, HELD = f"{NAME}-stable", f"{NAME}-canary", f"llm.{NAME}-rollouts"


class Row(NamedTuple):
    begin: Callable[[], Region]
    broken: Break
    code: str
    says: str
    """A part of the finding's sentence or evidence."""
    also: tuple[str, ...]
    """Codes that the same fault always brings."""


ROWS: list[Row] = []


def found(code: str, says: str, *also: str, begin: Callable[[], Region] = Region) -> Callable[[Break], Break]:
    """What is found of a region that the function has broken."""

    def add(broken: Break) -> Break:
        ROWS.append(Row(begin, broken, code, says, also))
        return broken

    return add


def empty() -> Region:
    return Region(deploy=False)


def istio() -> Region:
    return Region(fleet(traffic="istio"))


def large() -> Region:
    """All sixteen GPUs are taken by version 7."""
    region = Region(fleet(replicas=16))
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "64"}}})
    return region


# What a delivery may do


@found("not-ours", f"NetworkPolicy {NAME} in llm is not tidegate's")
def an_object_without_our_label(region: Region) -> None:
    region.edit(NETWORK_POLICIES, NAME, lambda it: it["metadata"].pop("labels"))


@found("crd-missing", "experiments.argoproj.io")
def a_definition_that_an_upgrade_removed(region: Region) -> None:
    region.cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, "experiments.argoproj.io")
    region.cluster.uninstall(EXPERIMENTS)


@found("crd-missing", "served: v1beta1")
def a_definition_that_serves_another_version(region: Region) -> None:
    name = "httproutes.gateway.networking.k8s.io"
    region.edit(CUSTOM_RESOURCE_DEFINITIONS, name, lambda it: it["spec"]["versions"][0].update(name="v1beta1"))


@found("crd-missing", "rollouts.argoproj.io", "controller-absent", "nothing-deployed", begin=empty)
def no_argo_rollouts_at_all(region: Region) -> None:
    for definition in region.cluster.list(CUSTOM_RESOURCE_DEFINITIONS):
        region.cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
    region.cluster.uninstall(ROLLOUTS)
    uninstalled(region)


@found("clock-skew", "40 s ahead of")
def clocks_that_differ(region: Region) -> None:
    region.api.clock_skew_seconds = 40


@found("admission-differs", f"ValidatingAdmissionPolicy {HELD} is not there")
def a_policy_that_is_not_there(region: Region) -> None:
    region.cluster.delete(ADMISSION_POLICIES, HELD)


@found("admission-differs", f"ValidatingAdmissionPolicyBinding {HELD} differs in validationActions")
def a_binding_that_only_warns(region: Region) -> None:
    region.edit(ADMISSION_BINDINGS, HELD, lambda it: it["spec"].update(validationActions=["Warn"]))


@found("admission-differs", "differs in matchResources")
def a_binding_that_holds_elsewhere(region: Region) -> None:
    narrow = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    region.edit(ADMISSION_BINDINGS, HELD, lambda it: it["spec"].update(matchResources=narrow))


@found("admission-differs", "differs in matchConditions, validations")
def a_policy_of_another_trust_file_and_for_nobody(region: Region) -> None:
    never = [{"name": "never", "expression": "false"}]
    changed = {"validations": [{"expression": "true", "message": "all is well"}], "matchConditions": never}
    region.edit(ADMISSION_POLICIES, HELD, lambda it: it["spec"].update(changed))


@found("admission-differs", "differs in matchConstraints.excludeResourceRules")
def a_policy_that_leaves_rollouts_out(region: Region) -> None:
    out = {"excludeResourceRules": [{"apiGroups": ["argoproj.io"], "resources": ["*"]}]}
    region.edit(ADMISSION_POLICIES, HELD, lambda it: it["spec"]["matchConstraints"].update(out))


# The controller


def uninstalled(region: Region) -> None:
    """Nothing of the controller is left in its namespace, and nobody renews its lease."""
    region.cluster.delete(DEPLOYMENTS, "argo-rollouts", namespace=CONTROLLER)
    region.cluster.delete(CONFIG_MAPS, "argo-rollouts-config", namespace=CONTROLLER)
    region.controller_dead = region.simulation.controller_down = True
    region.wait(120)


def controller_state(region: Region, **state: Any) -> None:
    (pod,) = region.cluster.list(PODS, namespace=CONTROLLER)
    region.states(pod, {"name": "argo-rollouts", "restartCount": 40, **state})


@found("controller-absent", "Deployment argo-rollouts: 0 ready")
def a_controller_that_was_scaled_to_nothing(region: Region) -> None:
    region.cluster.patch(DEPLOYMENTS, "argo-rollouts", {"spec": {"replicas": 0}}, namespace=CONTROLLER)
    region.wait(60)


@found("controller-absent", 'level=fatal msg="failed to download plugin"')
def a_controller_that_crashes_at_a_plugin_it_cannot_download(region: Region) -> None:
    region.simulation.crash("quay.io/argoproj/argo-rollouts:v1.9.1")
    region.wait(60)
    words = 'starting\nlevel=fatal msg="failed to download plugin"\n'
    ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": words}}
    controller_state(region, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)


@found("controller-absent", "40 restarts, last end: OOMKilled")
def a_controller_that_is_up_between_two_crashes(region: Region) -> None:
    now = region.cluster.time.now().isoformat()
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": now}}
    controller_state(region, state={"running": {"startedAt": now}}, lastState=ended)


@found("controller-absent", "no pod labelled app.kubernetes.io/name=argo-rollouts", "no-progress")
def a_controller_that_is_nowhere_and_leaves_a_change_unseen(region: Region) -> None:
    uninstalled(region)
    region.deploy("8")
    region.wait(600)


@found("no-progress", "generation 2, observed 1")
def a_controller_that_hangs(region: Region) -> None:
    region.simulation.controller_down = True
    region.deploy("8")
    region.wait(600)


@found("no-progress", "generation 2, observed 1", "not-looked-at")
def a_controller_elsewhere_that_fails_at_this_rollout(region: Region) -> None:
    """The status that it wrote after the change says that it lives."""
    uninstalled(region)
    region.rollout(lambda it: it["spec"].update(minReadySeconds=5))
    region.wait(600)
    now = region.cluster.time.now().isoformat()
    region.edit(ROLLOUTS, NAME, lambda it: it["status"]["conditions"][0].update(lastUpdateTime=now), status=True)


@found("no-progress", "has said Progressing at step 0/8 for 6 h", "plugin-fails")
def a_plugin_that_does_not_load_looks_like_progress_for_ever(region: Region) -> None:
    region.simulation.plugin_broken = True
    region.deploy("8")
    region.wait(6 * 3600)


def listing(region: Region, text: str) -> None:
    config = {"data": {"trafficRouterPlugins": text}}
    region.cluster.patch(CONFIG_MAPS, "argo-rollouts-config", config, namespace=CONTROLLER)


@found("plugin-unknown", "listed: argoproj-labs/gateway")
def a_plugin_of_another_name(region: Region) -> None:
    listing(region, '- name: "argoproj-labs/gateway"\n  location: "https://example.com/plugin"\n')


@found("plugin-unknown", "listed: none")
def plugins_that_are_no_list(region: Region) -> None:
    listing(region, "argoproj-labs/gatewayAPI: https://example.com/plugin\n")


@found("plugin-unknown", "trafficRouterPlugins is no YAML")
def plugins_that_are_no_yaml(region: Region) -> None:
    listing(region, '- name: "argoproj-labs/gatewayAPI\n')


@found("plugin-unknown", f"names the traffic plugin {PLUGIN}")
def no_configuration(region: Region) -> None:
    region.cluster.delete(CONFIG_MAPS, "argo-rollouts-config", namespace=CONTROLLER)


@found("plugin-fails", "connection is shut down")
def a_plugin_that_ended(region: Region) -> None:
    words = 'msg="roCtx.reconcile err rpc error: connection is shut down"'
    region.log = [f"level=info {words} rollout={NAME}", f"level=error {words} rollout={NAME}"]


@found("write-lost", "controller's version: 1.9")
def a_write_that_the_controller_lost(region: Region) -> None:
    woken = {"metadata": {"annotations": {WOKEN: "2026-01-01T00:00:00+00:00"}}}
    region.cluster.patch(ROLLOUTS, NAME, woken)


# The Rollout


@found("nothing-deployed", f"there is no Rollout {NAME} in namespace llm", begin=empty)
def no_delivery_yet(_: Region) -> None:
    pass


@found("nothing-serves", "has no available pod", "pod-crashes")
def all_engines_that_are_down(region: Region) -> None:
    region.simulation.crash("7")
    region.wait(120)


@found("rollout-invalid", "MaxSurge and MaxUnavailable")
def a_spec_that_the_controller_refuses(region: Region) -> None:
    region.refused("MaxSurge and MaxUnavailable\nboth can not be zero")


@found("rollout-aborted", "Rollout aborted update to revision 2", begin=canary)
def a_rollout_that_was_aborted_and_left(region: Region) -> None:
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")
    region.wait(600)


@found("progress-deadline-exceeded", "did not get on in time")
def an_engine_that_never_gets_ready(region: Region) -> None:
    region.simulation.slow("8", 86400)
    region.deploy("8")
    region.wait(2 * 3600)


@found("paused", "step 3/8", begin=canary)
def a_canary_that_was_forgotten(region: Region) -> None:
    region.wait(4 * 86400)


@found("paused", "InconclusiveAnalysisRun", begin=canary)
def an_analysis_that_could_not_decide(region: Region) -> None:
    pause = {"reason": "InconclusiveAnalysisRun", "startTime": region.cluster.time.now().isoformat()}
    status = {"status": {"pauseConditions": [pause], "controllerPause": True}}
    region.at_last.append(lambda: region.cluster.patch(ROLLOUTS, NAME, status, subresource="status"))


@found("abort-cannot-finish", "abortScaleDownDelaySeconds: 300")
def an_aborted_canary_that_keeps_its_pods(region: Region) -> None:
    fields = {"abortScaleDownDelaySeconds": 300, "minPodsPerReplicaSet": None, "scaleDownDelaySeconds": None}
    region.strategy(dynamicStableScale=True, **fields)
    region.wait(60)


@found("abort-cannot-finish", "minPodsPerReplicaSet: 2")
def an_aborted_canary_of_two_pods_at_least(region: Region) -> None:
    fields = {"abortScaleDownDelaySeconds": None, "minPodsPerReplicaSet": 2, "scaleDownDelaySeconds": None}
    region.strategy(dynamicStableScale=True, **fields)
    region.wait(60)


@found("reverted-by", "asks for version 7", begin=trial)
def an_older_version_that_argo_cd_applied(region: Region) -> None:
    template = region.cluster.get(ROLLOUTS, NAME)["spec"]["template"]
    labels = {**template["metadata"]["labels"], VERSION: "7"}
    written = {"spec": {"template": {"metadata": {"labels": labels}}}}
    region.cluster.patch(ROLLOUTS, NAME, written, manager="argocd-controller")
    region.wait(60)


# Traffic


def rule(region: Region, **fields: Any) -> None:
    """Somebody changes the one rule of the HTTPRoute."""
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(fields))


def selecting(region: Region, service: str, selector: Json) -> None:
    """Somebody undoes what the controller wrote, again and again."""
    region.at_last.append(lambda: region.cluster.patch(SERVICES, service, {"spec": {"selector": selector}}))


@found("service-missing", f"canaryService: {CANARY}", "rollout-invalid")
def a_service_that_is_not_there(region: Region) -> None:
    region.cluster.delete(SERVICES, CANARY)
    region.wait(30)


@found("service-wrong-pods", f"Service {STABLE} selects no pod of Rollout {NAME}")
def a_selector_that_nothing_matches(region: Region) -> None:
    selecting(region, STABLE, {"app": "chat"})


@found("service-wrong-pods", "also selected: litellm")
def a_selector_that_takes_in_other_pods(region: Region) -> None:
    (selected,) = {tuple(it["metadata"]["labels"].items()) for it in region.cluster.list(PODS, labels=f"{VERSION}=7")}
    labels = {key: value for key, value in selected if key != HASH}
    pod = {"metadata": {"name": "litellm", "namespace": "llm", "labels": labels}, "spec": {"containers": []}}
    region.bring({"apiVersion": "v1", "kind": "Pod", **pod})
    selecting(region, STABLE, {HASH: None})


@found("service-wrong-pods", f"{CANARY}: {HASH}: not set", begin=canary)
def a_selector_without_the_controllers_hash(region: Region) -> None:
    selecting(region, CANARY, {HASH: None})


@found("service-wrong-pods", "select the same pods while two versions run", begin=canary)
def selectors_of_one_version(region: Region) -> None:
    selecting(region, CANARY, {HASH: region.cluster.get(SERVICES, STABLE)["spec"]["selector"][HASH]})


@found("route-missing", f"there is no HTTPRoute {NAME} in namespace llm")
def a_route_that_is_not_there(region: Region) -> None:
    region.cluster.delete(HTTP_ROUTES, NAME)
    region.wait(30)


@found("route-missing", f"there is no HTTPRoute {NAME} in namespace default")
def a_route_that_is_looked_for_in_another_namespace(region: Region) -> None:
    region.strategy(trafficRouting={"plugins": {PLUGIN: {"httpRoute": NAME, "namespace": "default"}}})
    region.wait(30)


@found("route-missing", "there is no VirtualService gone", "rollout-invalid", begin=istio)
def a_virtual_service_that_is_not_there(region: Region) -> None:
    region.strategy(trafficRouting={"istio": {"virtualService": {"name": "gone", "routes": ["users"]}}})
    region.wait(30)


@found("route-without-service", "support-llm-preview")
def a_route_to_a_service_of_another_name(region: Region) -> None:
    rule(region, backendRefs=[{"name": STABLE, "port": 80}, {"name": "support-llm-preview", "port": 80}])


@found("route-without-service", "its backends: elsewhere", begin=istio)
def a_virtual_service_with_other_hosts(region: Region) -> None:
    routes = [{"destination": {"host": "elsewhere"}, "weight": 100}]
    http = {"spec": {"http": [{"name": "users", "route": routes}]}}
    region.at_last.append(lambda: region.cluster.patch(VIRTUAL_SERVICES, NAME, http))


@found("route-past-rollout", f"rule 1 names {STABLE} alone")
def a_route_whose_second_rule_goes_past_the_canary(region: Region) -> None:
    past = {"backendRefs": [{"name": STABLE, "port": 80}]}
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"].append(past))


@found("route-not-accepted", "NotAllowedByListeners")
def a_route_that_no_gateway_takes(region: Region) -> None:
    no = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no listener allows it"}
    status = {"status": {"parents": [{"parentRef": {"name": "public"}, "conditions": [no]}]}}
    region.cluster.patch(HTTP_ROUTES, NAME, status, subresource="status")


@found("weight-differs", "gives the canary 50 % of requests, not 5 %", begin=canary)
def a_route_whose_weights_somebody_else_writes(region: Region) -> None:
    halves = [{"name": name, "port": 80, "weight": 50} for name in (STABLE, CANARY)]
    region.at_last.append(lambda: rule(region, backendRefs=halves))


# Pods


@found("pods-refused", f"requests.{GPU}: 3 allowed, 2 used, 2 more needed")
def a_quota_without_room_for_a_second_version(region: Region) -> None:
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "3"}}})


@found("pods-refused", "no PriorityClass")
def pods_that_the_api_server_refuses(region: Region) -> None:
    def refuse(verb: str, kind: Kind, body: Json) -> None:
        if (verb, kind.plural) == ("create", "pods"):
            raise Refusal(403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name llm-engines was found')

    region.cluster.admission.append(refuse)
    region.deploy("8")
    region.wait(60)


@found("pods-unschedulable", f"Insufficient {GPU}", begin=large)
def gpus_that_are_all_taken(region: Region) -> None:
    region.deploy("8")
    region.wait(900)


@found("image-not-pulled", "ImagePullBackOff")
def an_image_that_cannot_be_pulled(region: Region) -> None:
    region.simulation.image_pull_fails("8")
    region.deploy("8")
    region.wait(120)


@found("pod-crashes", "3 restarts, last end: OOMKilled, exit code 137")
def an_engine_that_is_out_of_memory(region: Region) -> None:
    region.simulation.crash("8")
    region.deploy("8")
    region.wait(120)
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    for pod in region.cluster.list(PODS, labels=f"{VERSION}=8"):
        region.states(pod, {"name": "engine", "restartCount": 3, "state": waits, "lastState": ended})


@found("guard-absent", f"there is no Deployment {guard(NAME)}")
def a_guard_that_was_never_applied(region: Region) -> None:
    region.cluster.delete(DEPLOYMENTS, guard(NAME))
    region.wait(60)


@found("guard-absent", f"expected: {GUARD_IMAGE}")
def a_guard_of_another_image(region: Region) -> None:
    other = {"image": GUARD_IMAGE.replace("5", "4")}
    region.edit(DEPLOYMENTS, guard(NAME), lambda it: it["spec"]["template"]["spec"]["containers"][0].update(other))
    region.wait(60)


def guard_is(region: Region, state: Json) -> None:
    (pod,) = region.cluster.list(PODS, labels=f"{GUARD}={NAME}")
    status = {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"state": state}]}
    name = pod["metadata"]["name"]
    region.at_last.append(lambda: region.cluster.patch(PODS, name, {"status": status}, subresource="status"))


@found("guard-absent", "ErrImagePull: no such manifest")
def a_guard_whose_image_is_not_there(region: Region) -> None:
    guard_is(region, {"waiting": {"reason": "ErrImagePull", "message": "no such manifest"}})


@found("guard-absent", "it runs, and reports that it cannot guard")
def a_guard_that_lacks_a_right(region: Region) -> None:
    guard_is(region, {"running": {}})


# Evidence


def asks(region: Region, query: str) -> None:
    region.questions = (EvidenceQuery(asked_by="gate errors", query=query),)


def prometheus_says(error: Exception, word: str = "requests") -> Break:
    def broken(region: Region) -> None:
        asks(region, "sum(rate(requests_total[5m]))")
        region.prometheus.answers[word] = error

    return broken


found("prometheus-away", "https://p did not answer")(prometheus_says(Unreachable("https://p did not answer")))
found("prometheus-away", "self-signed")(prometheus_says(PrometheusCertificateUntrusted("self-signed certificate")))
found("prometheus-credential", "the variable TOKEN is not set")(
    prometheus_says(PrometheusCredentialMissing("the variable TOKEN is not set"))
)
found("prometheus-credential", "no org id")(prometheus_says(PrometheusCredentialRefused("401", detail="no org\nid")))
found("query-refused", "parse error")(prometheus_says(QueryRefused("1:5: parse error")))


@found("metric-unknown", "gate errors asks for litellm_requests_total")
def a_metric_that_nobody_exports(region: Region) -> None:
    asks(region, "sum(rate(litellm_requests_total[5m]))\n/ sum(rate(up[5m]))")
    region.prometheus.unknown = {"litellm_requests_total"}


@found("query-without-samples", "the answer is nothing")
def a_query_that_has_no_samples_now(region: Region) -> None:
    asks(region, 'sum(requests{region="eu-west-2"})')
    region.prometheus.answers["eu-west-2"] = ()


@found("query-without-samples", "the answer is NaN")
def a_query_that_is_zero_over_zero(region: Region) -> None:
    asks(region, "sum(bad) / sum(all)")
    region.prometheus.answers["sum(bad)"] = (float("nan"),)


@found(
    "scrape-interval-differs", "every 15s, and `metrics.scrape_interval` is 5s: a look of 15s has one scrape of each"
)
def engines_that_are_scraped_at_another_interval(region: Region) -> None:
    region.prometheus.answers["changes(timestamp("] = (15.0,)


@found("scrape-interval-differs", "a look of 15s has 15 scrapes of each")
def engines_that_a_second_monitor_scrapes(region: Region) -> None:
    region.prometheus.answers["changes(timestamp("] = (1.0,)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code}: {row.broken.__name__}")
async def test_it_is_found_by_its_code_and_no_other(row: Row) -> None:
    region = row.begin()
    row.broken(region)
    findings = await region.examined()
    assert {one.code for one in findings} == {row.code, *row.also}
    finding = next(one for one in findings if one.code == row.code)
    said = (finding.what, *finding.evidence)
    assert any(row.says in each for each in said), said
    assert [each for each in said if "\n" in each] == []


def test_every_check_has_a_row() -> None:
    elsewhere = {"access-denied", "not-looked-at"}
    assert {check.code for check in CHECKS} - elsewhere == {row.code for row in ROWS}
