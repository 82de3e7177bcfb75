"""The blue-green strategy: one reconciliation, and the status that it ends in.

Upstream: `rollout/bluegreen.go`, `rollout/service.go` (`reconcilePreviewService`, `reconcileActiveService`),
`rollout/pause.go` (`CompletedBlueGreenPause`), `rollout/sync.go` (`shouldFullPromote`).
"""

from __future__ import annotations

from datetime import timedelta

from fakes.argo import analysis, replica_sets, services
from fakes.argo.counts import preview_count
from fakes.argo.objects import ReplicaSet
from fakes.argo.pauses import BLUE_GREEN, INCONCLUSIVE
from fakes.argo.reconciliation import Reconciliation
from fakes.argo.replica_sets import selector_of
from fakes.argo.restart import restart_pods
from fakes.argo.role_metadata import sync_metadata
from fakes.argo.rollback import reset, within_window
from fakes.argo.status import base_status, promote, with_conditions

from rollouts.kube.model import Json


def reconcile_blue_green(r: Reconciliation) -> None:
    """The preview Service follows the new pods at once, the active one when they are all there and nothing waits."""
    replica_sets.sync_revision(r)
    replica_sets.create_new(r)
    assert r.new is not None
    preview = _service(r, "previewService")
    if preview is not None and not r.halted:
        services.switch(r, preview, r.new.hash)
    runs = analysis.Runs(r)
    if r.template_changed:
        _write_status(r, runs)
        return
    restart_pods(r)
    active = _service(r, "activeService") or {}
    scale_blue_green(r, selector_of(active))
    replica_sets.forget_old(r)
    _reconcile_pause(r, r.new, selector_of(active), runs)
    _switch_active(r, r.new, active, runs)
    runs.reconcile()
    sync_metadata(r)
    _write_status(r, runs)


def scale_blue_green(r: Reconciliation, active_hash: str) -> None:
    """The active version whole, the new one as the preview allows, others until their deadline."""
    replica_sets.remove_deadlines(r)
    active = r.by_hash(active_hash)
    if active is not None:
        replica_sets.scale(r, active, r.rollout.replicas)
    r.new = r.new or r.by_hash(r.rollout.current_hash)  # as `reconcileCanaryReplicaSets`, or it waits for ever
    if r.new is not None:
        replica_sets.scale_new(r, preview_count(r.rollout, r.by_hash(_colours(r).get("activeSelector", "")), r.new))
    after = r.rollout.strategy
    measured = "postPromotionAnalysis" not in after or "scaleDownDelaySeconds" in after or r.rollout.fully_promoted
    if r.pauses.condition(INCONCLUSIVE) is None and (measured or analysis.Runs(r).succeeded(analysis.AFTER)):
        replica_sets.scale_down_others_of_blue_green(r)


def _colours(r: Reconciliation) -> Json:
    colours: Json = r.rollout.status.get("blueGreen", {})
    return colours


def _service(r: Reconciliation, role: str) -> Json | None:
    name = r.rollout.strategy.get(role)
    return r.service(name) if name else None


def _fast_tracked(r: Reconciliation, new: ReplicaSet, active_hash: str) -> bool:
    """No pause: the version is still warm, a full promotion was asked for, or nothing or this one is active."""
    return r.warm or r.rollout.promoting_fully or active_hash in ("", new.hash)


def _ready(r: Reconciliation, new: ReplicaSet) -> bool:
    """`ReadyForPause`: the pods that the preview should have are available."""
    preview = r.rollout.strategy.get("previewReplicaCount")
    if preview is not None and not _colours(r).get("scaleUpPreviewCheckPoint"):
        return new.available == int(preview) or new.available == r.rollout.replicas
    return _saturated(r, new)


def _saturated(r: Reconciliation, new: ReplicaSet) -> bool:
    return new.replicas == new.available == r.rollout.replicas


def _needs_pause(r: Reconciliation) -> bool:
    strategy = r.rollout.strategy
    return strategy.get("autoPromotionEnabled") is False or int(strategy.get("autoPromotionSeconds", 0)) > 0


def _measured_before(r: Reconciliation, runs: analysis.Runs) -> bool:
    return "prePromotionAnalysis" not in r.rollout.strategy or runs.succeeded(analysis.BEFORE)


def _reconcile_pause(r: Reconciliation, new: ReplicaSet, active_hash: str, runs: analysis.Runs) -> None:
    if r.rollout.aborted or r.halted or not _ready(r, new):
        return
    passed = _colours(r).get("scaleUpPreviewCheckPoint")
    if _fast_tracked(r, new, active_hash) or passed or not _needs_pause(r):
        r.pauses.remove(BLUE_GREEN)
        return
    if not _measured_before(r, runs):
        return
    seconds = int(r.rollout.strategy.get("autoPromotionSeconds", 0))
    if r.pauses.condition(BLUE_GREEN) is None:
        if not r.rollout.status.get("controllerPause"):
            r.pauses.add(BLUE_GREEN)
            if seconds:
                r.world.wake(r.now + timedelta(seconds=seconds))
    elif _pause_completed(r):
        r.pauses.remove(BLUE_GREEN)
    elif seconds and (ends := r.pauses.ends(BLUE_GREEN, seconds)) is not None:
        r.world.wake(ends)


def _pause_completed(r: Reconciliation) -> bool:
    """`CompletedBlueGreenPause`: somebody resumed it, or `autoPromotionSeconds` are over."""
    if r.pauses.adds:
        return False
    if _colours(r).get("scaleUpPreviewCheckPoint") or not _needs_pause(r):
        return True
    if r.rollout.strategy.get("autoPromotionEnabled") is False:
        return bool(r.rollout.status.get("controllerPause")) and r.pauses.condition(BLUE_GREEN) is None
    ends = r.pauses.ends(BLUE_GREEN, int(r.rollout.strategy.get("autoPromotionSeconds", 0)))
    return ends is not None and r.now >= ends


def _switch_active(r: Reconciliation, new: ReplicaSet, active: Json, runs: analysis.Runs) -> None:
    """To the new one when it may serve; back to the stable when aborted."""
    if r.halted:
        return
    wished = selector_of(active)
    if (
        _ready(r, new)
        and _saturated(r, new)
        and (_fast_tracked(r, new, wished) or (_pause_completed(r) and _measured_before(r, runs)))
    ):
        wished = new.hash
    if r.rollout.aborted:
        wished = r.rollout.stable_hash
    if wished:
        services.switch(r, active, wished)


def _write_status(r: Reconciliation, runs: analysis.Runs) -> None:
    status = base_status(r)
    if r.template_changed:
        reset(r, status)
    if r.rollout.promoting_fully or within_window(r):
        r.pauses.clear()
        r.pauses.unabort()
    colours = status["blueGreen"]
    for colour in ("preview", "active"):
        colours[f"{colour}Selector"] = selector_of(_service(r, f"{colour}Service"))
    reason = _promotes(r, colours["activeSelector"], status["currentPodHash"], runs)
    if reason is not None:
        promote(r, status, reason)
    else:
        colours["scaleUpPreviewCheckPoint"] = _check_point(r, runs)
    active = r.by_hash(colours["activeSelector"])
    if active is not None:
        counts = {"HPAReplicas": active.actual, "availableReplicas": active.available, "readyReplicas": active.ready}
        status |= counts
        labels = active.body["spec"]["selector"]["matchLabels"]
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    else:
        status["availableReplicas"] = sum(rs.available for rs in r.all)
    r.persist(with_conditions(r, status))


def _promotes(r: Reconciliation, active_hash: str, current: str, runs: analysis.Runs) -> str | None:
    """Why the new one becomes stable now (`shouldFullPromote`): it is active, and nothing more is measured."""
    if r.stable is None or not active_hash:
        return "Initial deploy"
    if active_hash != current:
        return None
    if r.rollout.promoting_fully:
        return "Full promotion requested"
    if within_window(r):
        return "Rollback within window"
    if "postPromotionAnalysis" in r.rollout.strategy and r.new is not None and r.warm:
        return None if r.pauses.aborted else f"Rollback to '{r.new.name}' within scaleDownDelay"
    measured = "postPromotionAnalysis" not in r.rollout.strategy or runs.succeeded(analysis.AFTER)
    return "Completed blue-green update" if measured and not r.pauses.aborted else None


def _check_point(r: Reconciliation, runs: analysis.Runs) -> bool:
    """`calculateScaleUpPreviewCheckPoint`: passed once, until the template changes or the version is stable."""
    preview = r.rollout.strategy.get("previewReplicaCount")
    if preview is None or r.new is None:
        return False
    if _colours(r).get("scaleUpPreviewCheckPoint"):
        return True
    return _measured_before(r, runs) and _pause_completed(r) and r.new.available == int(preview)
