"""Blue-green, as `rollout/bluegreen.go` has it."""

from __future__ import annotations

from fakes.argo.scene import Scene, blue_green


def test_the_active_service_switches_once_all_pods_are_there() -> None:
    scene = Scene(blue_green())
    assert (scene.phase, scene.serves) == ("Healthy", {"stable": "1", "canary": "1"})
    scene.deploy("2")
    assert scene.serves == {"stable": "1", "canary": "2"}
    scene.wait(30)
    assert (scene.phase, scene.serves) == ("Healthy", {"stable": "2", "canary": "2"})


def test_the_old_version_stays_for_thirty_seconds() -> None:
    scene = Scene(blue_green())
    scene.deploy("2")
    scene.wait(20)
    assert scene.pods == {"1": 4, "2": 4}
    scene.wait(29)
    assert scene.pods == {"1": 4, "2": 4}
    scene.wait(1)
    assert scene.pods == {"2": 4}


def test_without_automatic_promotion_it_pauses_before_the_switch() -> None:
    scene = Scene(blue_green(autoPromotionEnabled=False))
    scene.deploy("2")
    scene.wait(86_400)
    assert (scene.phase, scene.serves["stable"]) == ("Paused BlueGreenPause", "1")
    scene.resume()
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")


def test_automatic_promotion_may_wait() -> None:
    scene = Scene(blue_green(autoPromotionSeconds=60))
    scene.deploy("2")
    scene.wait(20 + 59)
    assert scene.phase == "Paused BlueGreenPause"
    scene.wait(1)
    assert scene.phase == "Healthy"


def test_a_full_promotion_skips_the_pause() -> None:
    scene = Scene(blue_green(autoPromotionEnabled=False))
    scene.deploy("2")
    scene.wait(30)
    scene.promote_full()
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")


def test_the_preview_may_be_small_until_it_is_promoted() -> None:
    scene = Scene(blue_green(autoPromotionEnabled=False, previewReplicaCount=1))
    scene.deploy("2")
    scene.wait(30)
    assert (scene.phase, scene.pods) == ("Paused BlueGreenPause", {"1": 4, "2": 1})
    scene.resume()
    assert scene.serves["stable"] == "1"
    scene.wait(30)
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")


def test_an_abort_before_the_switch_leaves_the_active_version() -> None:
    scene = Scene(blue_green(autoPromotionEnabled=False))
    scene.deploy("2")
    scene.wait(30)
    scene.abort()
    scene.wait(60)
    assert (scene.phase.split()[0], scene.serves["stable"]) == ("Degraded", "1")
    assert scene.pods == {"1": 4}


def test_a_version_that_is_still_warm_needs_no_pause() -> None:
    scene = Scene(blue_green(autoPromotionEnabled=False, scaleDownDelaySeconds=3600))
    scene.deploy("2")
    scene.wait(30)
    scene.resume()
    scene.deploy("1")
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "1")
