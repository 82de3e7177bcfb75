"""The simulated Argo Rollouts controller as a process next to a real API server.

    PYTHONPATH=tests python -m fakes.argo.process --kubeconfig FILE --namespace serving

ReplicaSets, pods, Services, endpoints and gateways are the cluster's own; only Rollouts are worked on
here, by the code of `fakes.argo.controller`. It lists what there is, works until nothing is left to do, and lists
again. Once it knows what is there it prints one line that begins with `ready`. Everything it must remember is in the
API server, so that it may be killed and started again at any time. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from fakes.argo.mirror import Mirror
from fakes.argo.objects import HASH_LABEL
from fakes.argo.simulation import Simulation
from fakes.kube.refusal import Refusal

from rollouts.errors import FleetError
from rollouts.kube.client import connect
from rollouts.kube.resources import DEPLOYMENTS, EVERYWHERE, PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from tidegate.core.clock import SystemClock

OFTEN = {ROLLOUTS: "", REPLICA_SETS: HASH_LABEL}
"""Listed every `LOOK_SECONDS`, each with a label that all have which some Rollout made."""
SELDOM = {PODS: HASH_LABEL, SERVICES: "", DEPLOYMENTS: ""}
"""Listed every `SELDOM_SECONDS`, and before anything is done about a change of what is listed often."""
LOOK_SECONDS, SELDOM_SECONDS = 0.2, 1.0

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.001, 10.0
"""`utils/queue/queue.go`, DefaultArgoRolloutsRateLimiter."""
RETRY_SECONDS = 2.0
"""How long a request is repeated; the queue tries a whole pass again after that."""


class Ending:
    """Whether somebody ended it; a handler that sets a `threading.Event` waits for itself where its thread waits."""

    asked = False

    def ask(self, *_: object) -> None:
        self.asked = True


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    ending = Ending()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ending.ask)
    with asyncio.Runner() as runner:
        try:
            client = connect(
                options.context,
                clock=SystemClock(),
                namespace="default",
                kubeconfig=options.kubeconfig,
                retry_seconds=RETRY_SECONDS,
            )
            mirror = Mirror((*OFTEN, *SELDOM), ask=lambda request: runner.run(client.send(request)))
            _work(mirror, options, ending)
            runner.run(client.close())
        except (FleetError, Refusal) as error:
            print(f"rollouts controller: {error}", file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m fakes.argo.process", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kubeconfig", help="a file; KUBECONFIG otherwise")
    parser.add_argument("--context", help="the file's current one otherwise")
    parser.add_argument("--namespace", default=EVERYWHERE, help="all of them otherwise")
    return parser


def _work(mirror: Mirror, options: argparse.Namespace, ending: Ending) -> None:
    """Until somebody ends it."""
    simulation = Simulation(
        mirror,
        reacts=False,
        works_on=(ROLLOUTS,),
        first_retry_seconds=FIRST_RETRY_SECONDS,
        longest_retry_seconds=LONGEST_RETRY_SECONDS,
    )
    for resource, labels in (OFTEN | SELDOM).items():
        mirror.look(resource, options.namespace, labels)
    print(f"ready: {len(mirror.list(ROLLOUTS))} Rollouts", flush=True)
    looked = 0.0
    while not ending.asked:
        try:
            changed = [mirror.look(resource, options.namespace, labels) for resource, labels in OFTEN.items()]
            if any(changed) or time.monotonic() - looked > SELDOM_SECONDS:
                for resource, labels in SELDOM.items():
                    mirror.look(resource, options.namespace, labels)
                looked = time.monotonic()
        except Refusal as refusal:
            print(f"cannot look: {refusal}", file=sys.stderr, flush=True)
        else:
            if not _does_all(simulation, ending):
                looked = 0.0
        due = simulation.due
        left = LOOK_SECONDS if due is None else (due - mirror.time.now()) / timedelta(seconds=1)
        time.sleep(min(max(left, 0.0), LOOK_SECONDS))


def _does_all(simulation: Simulation, ending: Ending) -> bool:
    """Do all that can be done with what is known; false when a pass failed, which comes again after the next look."""
    done = True
    while done and not ending.asked and not simulation.log:
        try:
            done = simulation.work_once() is not None
        except NotImplementedError as error:
            print(f"not simulated: {error}", file=sys.stderr, flush=True)
    failed = "\n".join(simulation.log)
    if failed:
        print(failed, file=sys.stderr, flush=True)
    simulation.log.clear()
    return not failed


if __name__ == "__main__":
    sys.exit(main())
