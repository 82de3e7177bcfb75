"""Progressive delivery for LLMs: from the registry to every region, and back by itself when it is worse.

    spec = tidegate.load_spec("delivery.yaml")
    async with tidegate.connect(spec) as backends:
        result = await tidegate.deliver(backends, version="7", listeners=[print])

The package `gates` judges evidence of one's own; `tidegate.testing` (needs pytest) tests fleets of one's own.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_NAMES = {
    "gates.adapters.prometheus": "PrometheusSource",
    "gates.model": "ArmKey EngineReply GateOutcome Verdict",
    "gates.ports": "EvidenceSource",
    "pipelines.errors": "NotAsPlanned PlanRefused",
    "pipelines.model": "Ending Plan PlanStep Result",
    "pipelines.ports": "Chat EngineProvider Fleet Ledger Tokenizer",
    "pipelines.spec.delivery": "Delivery",
    "pipelines.views.status": "StatusReport",
    "registry.errors": "DeliveryRuns",
    "registry.model": "ModelVersion",
    "rollouts.base": "BaseFleet RegionReading RegionSplit ServingVersion",
    "rollouts.errors": "EngineDidNotStart FleetError NotConfirmed NotPossible",
    "rollouts.model": "PORT Engine EngineSet RegionPhase RegionState Role",
    "tidegate.api": "Connection connect deliver load_spec plan register resume rollback status",
    "tidegate.way_back": "RollbackOutcome",
    "tidegate.core.access": "PrometheusEndpoint",
    "tidegate.core.errors": "ExitCode OutsideError Refused TidegateError UsageError",
}
_HOME = {name: (module, name) for module, names in _NAMES.items() for name in names.split()}
_HOME["DeliveryEvent"] = ("registry.model", "Event")
__all__ = sorted([*_HOME, "testing"])  # noqa: PLE0605  # `__init__.pyi` has them one by one


def __getattr__(name: str) -> object:
    """Import what is asked for when it is first used: the command line starts without all of it."""
    if name == "testing":
        return import_module("tidegate.testing")
    if name not in _HOME:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


class _FrontDoor(ModuleType):
    """Importing the module `tidegate.connect` does not take the place of the function `tidegate.connect`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
