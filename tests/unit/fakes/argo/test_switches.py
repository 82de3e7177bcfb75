"""What goes wrong in a controller that is a process, said by a ConfigMap."""

from __future__ import annotations

import pytest
from fakes.argo.scene import Scene
from fakes.argo.switches import Switches

from rollouts.kube.model import Change, ChangeKind


def said(kind: ChangeKind = ChangeKind.MODIFIED, **data: str) -> Change:
    return Change(kind=kind, object={"metadata": {"name": "switches"}, "data": data})


def test_the_plugin_breaks_and_is_mended() -> None:
    scene = Scene()
    switches = Switches(scene.simulation)
    switches.follow(said(plugin_broken="true"))
    assert scene.simulation.plugin_broken
    switches.follow(said(ChangeKind.DELETED))
    assert not scene.simulation.plugin_broken


def test_what_cannot_be_read_is_told_and_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene()
    Switches(scene.simulation).follow(said(plugin="true", plugin_broken="yes", analysis="failed"))
    assert not scene.simulation.plugin_broken
    assert capsys.readouterr().err.splitlines() == [
        "switches: no switch plugin; there are plugin_broken, mirrors, analysis, analysis_message",
        "switches: plugin_broken is yes; it can be true, false",
        "switches: analysis is failed; it can be Running, Successful, Failed, Error, Inconclusive",
    ]
