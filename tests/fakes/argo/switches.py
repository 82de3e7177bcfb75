"""What goes wrong in a controller that runs as a process, said by a ConfigMap.

| key | values | as |
|---|---|---|
| `plugin_broken` | `true`, `false` | `Simulation.plugin_broken` |
| `mirrors` | `true`, `false` | `Simulation.mirrors` |
| `analysis` | `Running`, `Successful`, `Failed`, `Error`, `Inconclusive` | `Simulation.analysis` |
| `analysis_message` | words | what such runs say |

A key that is not there, and a ConfigMap that is not there, is as at first. A controller that is down is a process that
was stopped or killed.
"""

from __future__ import annotations

import sys

from fakes.argo.simulation import Simulation

from rollouts.kube.model import Change, ChangeKind

PHASES = ("Running", "Successful", "Failed", "Error", "Inconclusive")
AT_FIRST = {"plugin_broken": "false", "mirrors": "true", "analysis": "Running", "analysis_message": ""}


class Switches:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._now = dict(AT_FIRST)

    def follow(self, change: Change) -> None:
        """Set what changed; what cannot be read is told and stays as it was."""
        if change.kind in (ChangeKind.SYNCED, ChangeKind.BOOKMARK):
            return
        said = {} if change.kind is ChangeKind.DELETED else change.object.get("data") or {}
        wished = AT_FIRST | {key: text for key, text in said.items() if self._understood(key, text)}
        before, self._now = self._now, wished
        changed = {key for key in AT_FIRST if before[key] != wished[key]}
        if "plugin_broken" in changed:
            self._simulation.plugin_broken = wished["plugin_broken"] == "true"
        if "mirrors" in changed:
            self._simulation.mirrors = wished["mirrors"] == "true"
        if changed & {"analysis", "analysis_message"}:
            self._simulation.analysis(wished["analysis"], wished["analysis_message"])

    def _understood(self, key: str, text: str) -> bool:
        values = {"plugin_broken": ("true", "false"), "mirrors": ("true", "false"), "analysis": PHASES}
        if key not in AT_FIRST:
            wrong = f"no switch {key}; there are {', '.join(AT_FIRST)}"
        elif key in values and text not in values[key]:
            wrong = f"{key} is {text}; it can be {', '.join(values[key])}"
        else:
            return True
        print(f"switches: {wrong}", file=sys.stderr, flush=True)
        return False
