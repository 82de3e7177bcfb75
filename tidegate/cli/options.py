"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Option

from tidegate.cli.settings import given
from tidegate.core.errors import UsageError
from tidegate.core.units import format_duration, parse_duration

if TYPE_CHECKING:
    from pipelines.events.listeners import DeliveryDisplay
    from pipelines.spec.delivery import Delivery
    from registry.versions import MlflowRegistry
    from tidegate.surroundings import Surroundings

SPEC = Path("delivery.yaml")
Spec = Annotated[Path, Argument(help="The delivery's spec.", show_default=True)]
DeliveryId = Annotated[str, Argument(help="The delivery's id, or at least its first 8 characters.")]
VersionNumber = Annotated[
    str | None,
    Option(metavar="NUMBER", help="Number of the version; default: the one with the alias `model.from`."),
]
PrometheusAccessOption = Annotated[
    Path | None,
    Option(
        "--prometheus-access",
        metavar="FILE",
        help="Tenant, CA and credentials of that Prometheus; secrets stand in files and variables that it names.",
    ),
]
Insecure = Annotated[bool, Option("--insecure", help="Allow plain HTTP to other machines; never with a password.")]
Namespace = Annotated[str | None, Option(metavar="NAME", help="Namespace; default: the context's.")]
RegionOfSpec = Annotated[str | None, Option(metavar="NAME", help="Region of the spec; default: its only one.")]
Regions = Annotated[
    list[str] | None, Option("--region", metavar="NAME", help="Region of the spec; repeatable; default: all.")
]
Hosts = Annotated[
    list[str] | None,
    Option("--host", metavar="NAME", help="Host name that it accepts, besides IP addresses; repeatable."),
]
TlsCert = Annotated[Path | None, Option(help="TLS certificate of what it listens on.")]
TlsKey = Annotated[Path | None, Option(help="Key of the certificate.")]
By = Annotated[str | None, Option(help="Your name, where the spec accepts a name.")]
Identity = Annotated[
    str | None,
    Option(
        "--identity",
        envvar="TIDEGATE_IDENTITY",
        metavar="KIND:VALUE",
        help="Who you are: ssh:FILE (the public key will do when an agent holds it), or oidc-cmd:COMMAND that prints a "
        "token ({digest} in it is what the token must carry).",
    ),
]
Ci = Annotated[
    bool,
    Option(
        "--ci",
        help="For CI: plain lines, JUnit XML in tidegate-junit.xml, and a Markdown summary on the job's page "
        "(GitHub) or in tidegate-summary.md.",
    ),
]


class Duration(timedelta):
    """Shown as a person writes it."""

    def __str__(self) -> str:
        return format_duration(self) if self else "0s"


def duration(value: str | timedelta) -> Duration:
    """The parser of options such as `30s`, `10m`, `2h`; a default is one already.

    Raises:
        BadParameter: when the text means none.
    """
    try:
        read = value if isinstance(value, timedelta) else parse_duration(value)
    except ValueError as error:
        raise BadParameter(f"found {value!r}; expected {error}") from error
    return Duration(seconds=read.total_seconds())


def selected_regions(spec: Delivery, named: Sequence[str], context: str | None) -> tuple[str, ...]:
    """Those that are named; none for all.

    Raises:
        UsageError: the spec has no such region, or a context is named too.
    """
    if context is not None:
        raise UsageError("--context: the spec says the context of each region", hint="select regions by --region")
    for region in named:
        if region not in spec.regions.names:
            raise UsageError(f"--region: found {region!r}; expected one of {', '.join(spec.regions.names)}")
    return tuple(named)


def surroundings(spec_folder: Path | None = None) -> Surroundings:
    """Where the command works. A trust file in the folder of the caller's spec is refused unless it is named."""
    from tidegate.surroundings import Surroundings

    return Surroundings(given().state, given().tracking_uri, spec_folder)


def opened_registry() -> MlflowRegistry:
    """The registry alone, which loads less than `surroundings`."""
    from pipelines.adapters.stores import open_registry

    return open_registry(given().state, given().tracking_uri)


def delivery_display(*, plain: bool = False) -> DeliveryDisplay:
    """What follows a delivery on stderr; in lines that do not move when `plain`."""
    from tidegate.cli.views.delivery import PlainConsole, follow
    from tidegate.core.clock import SystemClock

    return follow(PlainConsole(stderr=True), SystemClock(), plain=plain)
