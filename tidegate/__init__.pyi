"""What `tidegate.__getattr__` brings, for type checkers."""

from gates.adapters.prometheus import PrometheusSource as PrometheusSource
from gates.model import ArmKey as ArmKey
from gates.model import EngineReply as EngineReply
from gates.model import GateOutcome as GateOutcome
from gates.model import Verdict as Verdict
from gates.ports import EvidenceSource as EvidenceSource
from pipelines.errors import NotAsPlanned as NotAsPlanned
from pipelines.errors import PlanRefused as PlanRefused
from pipelines.model import Ending as Ending
from pipelines.model import Plan as Plan
from pipelines.model import PlanStep as PlanStep
from pipelines.model import Result as Result
from pipelines.ports import Chat as Chat
from pipelines.ports import EngineProvider as EngineProvider
from pipelines.ports import Fleet as Fleet
from pipelines.ports import Ledger as Ledger
from pipelines.ports import Tokenizer as Tokenizer
from pipelines.spec.delivery import Delivery as Delivery
from pipelines.views.status import StatusReport as StatusReport
from registry.errors import DeliveryRuns as DeliveryRuns
from registry.model import Event
from registry.model import ModelVersion as ModelVersion
from rollouts.base import BaseFleet as BaseFleet
from rollouts.base import RegionReading as RegionReading
from rollouts.base import RegionSplit as RegionSplit
from rollouts.base import ServingVersion as ServingVersion
from rollouts.errors import EngineDidNotStart as EngineDidNotStart
from rollouts.errors import FleetError as FleetError
from rollouts.errors import NotConfirmed as NotConfirmed
from rollouts.errors import NotPossible as NotPossible
from rollouts.model import PORT as PORT
from rollouts.model import Engine as Engine
from rollouts.model import EngineSet as EngineSet
from rollouts.model import RegionPhase as RegionPhase
from rollouts.model import RegionState as RegionState
from rollouts.model import Role as Role
from tidegate import testing as testing
from tidegate.api import Connection as Connection
from tidegate.api import connect as connect
from tidegate.api import deliver as deliver
from tidegate.api import load_spec as load_spec
from tidegate.api import plan as plan
from tidegate.api import register as register
from tidegate.api import resume as resume
from tidegate.api import rollback as rollback
from tidegate.api import status as status
from tidegate.core.access import PrometheusEndpoint as PrometheusEndpoint
from tidegate.core.errors import ExitCode as ExitCode
from tidegate.core.errors import OutsideError as OutsideError
from tidegate.core.errors import Refused as Refused
from tidegate.core.errors import TidegateError as TidegateError
from tidegate.core.errors import UsageError as UsageError
from tidegate.way_back import RollbackOutcome as RollbackOutcome

DeliveryEvent = Event
__version__: str
