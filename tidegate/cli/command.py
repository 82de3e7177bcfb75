"""What every command and group has in common: the global options, `-h`, and help that is never cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate import __version__
from tidegate.cli.settings import STATE_VARIABLE, TRACKING_VARIABLE, Output, given
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.process import TRUST_VARIABLE

if TYPE_CHECKING:
    Mixed = TyperCommand
else:
    Mixed = object
HELP_NAMES = ["-h", "--help"]
WHOLE = 1_000
"""Characters of a description: the list of commands wraps it, and cuts nothing."""
WORDS = {"Path": "FILE", "int": "NUMBER", "float": "NUMBER", "str": "TEXT", "Duration": "DURATION"}
"""What help calls a value, by its type, where the option has no word of its own."""
SECTIONS: dict[str, str] = {
    "Judge: your Rollout, Flagger or pipeline stays in charge": "gate",
    "Deliver: tidegate moves the traffic": "init doctor plan deliver status approve resume rollback report serve",
    "See it run, on this machine": "setup fleet",
    "What they stand on": "model engine rollout slo audit completion",
}
"""The commands of the top help in the order of need. The others are for editors, workflows and checks of a spec."""
SHOWN = " ".join(SECTIONS.values()).split()
HINT = "--state, --tracking-uri, --context, -o, -q and other global options: see `tidegate --help`."


def _keep(name: str, value: object) -> None:
    """For the settings; an empty tracking URI takes back that of the environment."""
    setattr(given(), name, value or None)


def _export(variable: str, value: Path) -> None:
    """For the process, and for what it starts."""
    os.environ[variable] = str(value.absolute())


def _print_version(_: object) -> None:
    print(f"tidegate {__version__}")
    raise typer.Exit


def _option(names: str, metavar: str | None, act: Callable[[Any], None], words: str) -> Any:
    def given_or_not(value: Any) -> None:
        # One that is not given takes nothing back: it may stand before the command's name too.
        if value is not None and value is not False:
            act(value)

    return typer.Option(*names.split(), metavar=metavar, callback=given_or_not, expose_value=False, help=words)


_STATE = f"This machine's state; default: .tidegate.  [env var: {STATE_VARIABLE}]"
_TRACKING = f"MLflow's tracking URI; default: a store in --state.  [env var: {TRACKING_VARIABLE}]"
_KUBECONFIG = "Credentials of clusters; default: KUBECONFIG, ~/.kube/config, or the pod's own."
_CONTEXT = "Context of the kubeconfig; default: the current one, or this pod's cluster."
_OUTPUT = "text, json, yaml, name, markdown or junit: see each command."
_TRUST = (
    "Trust file of whoever operates deliveries; one next to a spec counts only when it is named.  "
    f"[env var: {TRUST_VARIABLE}]"
)


def global_options(
    *,
    show_version: Annotated[bool, _option("--version", None, _print_version, "Print the version and exit.")] = False,
    state: Annotated[Path | None, _option("--state", "FOLDER", partial(_keep, "state_folder"), _STATE)] = None,
    tracking_uri: Annotated[
        str | None, _option("--tracking-uri", "URI", partial(_keep, "tracking_uri"), _TRACKING)
    ] = None,
    kubeconfig: Annotated[
        Path | None, _option("--kubeconfig", "FILE", partial(_export, "KUBECONFIG"), _KUBECONFIG)
    ] = None,
    context: Annotated[str | None, _option("--context", "NAME", partial(_keep, "context"), _CONTEXT)] = None,
    output: Annotated[Output | None, _option("-o --output", "FORMAT", partial(_keep, "output"), _OUTPUT)] = None,
    quiet: Annotated[
        bool, _option("-q --quiet", None, partial(_keep, "quiet"), "Print results and errors only, no progress.")
    ] = False,
    trust: Annotated[Path | None, _option("--trust", "FILE", partial(_export, TRUST_VARIABLE), _TRUST)] = None,
    debug: Annotated[bool, _option("--debug", None, id, "Print the traceback of an error.")] = False,
) -> None:
    """Declare what every command takes, before its name or after it; each acts while the command line is read.

    What they say holds for the whole process, and for what it starts.
    """


@cache
def _global_parameters(*, hidden: bool) -> list[Any]:
    """The global options, as Typer makes them; a command hides them, and its help points to `tidegate --help`."""
    holder = typer.Typer(add_completion=False)
    holder.command()(global_options)
    command: Any = typer.main.get_command(holder)
    for each in command.params:
        each.hidden = hidden
    return list(command.params)


def _in_words(parameter: Any) -> None:
    """Have help name a value by a word, not by its type in Python; choices stay listed."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar = str(parameter.metavar or parameter.name).upper()
        shown = name if parameter.required else f"[{name}]"
        parameter.get_usage_pieces = lambda _: [shown]
        if not parameter.type_descriptor.is_choice:
            parameter.display_type_rich = lambda **_: None
    elif parameter.metavar is None and not parameter.is_flag:
        kind = parameter.type_descriptor.annotation
        (kind,) = get_args(kind)[:1] or (kind,)
        parameter.metavar = WORDS.get(getattr(kind, "__name__", ""))


class Everywhere(Mixed):
    """What commands and groups do alike."""

    def get_params(self, ctx: Any) -> list[Any]:
        """With the global options but those that the command declares itself."""
        *own, last = super().get_params(ctx)
        for each in own:
            _in_words(each)
        names = {name for each in own for name in each.opts}
        shared = _global_parameters(hidden=not isinstance(self, Root))
        return [*own, *(each for each in shared if names.isdisjoint(each.opts)), last]

    def get_help_option_names(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """In this order, and also in the reference."""
        return HELP_NAMES

    def get_short_help_str(self, limit: int = WHOLE) -> str:
        """The first sentence, whole."""
        return super().get_short_help_str(max(limit, WHOLE))


class Command(Everywhere, TyperCommand):
    """A command of tidegate."""

    @property
    def formats(self) -> tuple[Output, ...]:
        """In which it prints its result; none where it prints none."""
        return getattr(self.callback, "formats", ())

    def invoke(self, ctx: Any) -> Any:
        """Refuse a format that the command does not print, before it does anything."""
        output = given().output
        if output is not Output.TEXT and output not in self.formats:
            known = ", ".join(self.formats) or "text"
            raise UsageError(f"-o: found {output}; `{ctx.command_path}` prints {known}")
        return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """And the formats, and where the other options are."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        if len(self.formats) > 1:
            formatter.write_text(f"Output (-o): {', '.join(self.formats)}.")
        formatter.write_text(HINT)


class Group(Everywhere, TyperGroup):
    """A group of commands; alone it prints its help, and exits with 2 because nothing was done."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help(), file=sys.stderr)
            raise typer.Exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)


class Root(Group):
    """`tidegate` itself: its help shows the global options, and its commands in the order of need."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of need; the reference follows it."""
        return [*SHOWN, *(name for name in super().list_commands(ctx) if name not in SHOWN)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Commands first: who asks for help at the top looks for one."""
        width = max(map(len, SHOWN))
        for title, names in SECTIONS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str()) for name in names.split()]
            with formatter.section(title):
                formatter.write_dl(rows)
        options = [record for each in self.get_params(ctx) if (record := each.get_help_record(ctx))]
        with formatter.section("Global options, before or after the command"):
            formatter.write_dl(options)


def add_command(app: typer.Typer, command: Callable[..., int] | typer.Typer) -> None:
    """Add a command, or a group with its commands; what is in no section of the top help is hidden."""
    if isinstance(command, typer.Typer):
        for each in command.registered_commands:
            each.cls = Command
        kind = command.info.cls
        app.add_typer(command, cls=kind if isinstance(kind, type) else Group, hidden=command.info.name not in SHOWN)
    else:
        app.command(cls=Command, hidden=command.__name__ not in SHOWN)(command)
