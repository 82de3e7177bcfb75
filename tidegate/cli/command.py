"""What every command and group has in common: the global options, `-h`, and help that is never cut."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate.cli.global_options import given, global_options
from tidegate.cli.output import Output
from tidegate.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    Mixed = TyperCommand
else:
    Mixed = object

HELP_NAMES = ["-h", "--help"]
WHOLE = 1_000
"""Characters of a description: the list of commands wraps it, and cuts nothing."""
WORDS = {"Path": "FILE", "int": "NUMBER", "float": "NUMBER", "str": "TEXT", "Duration": "DURATION"}
"""What help calls a value, by its type, where the option has no word of its own."""
SECTIONS = {
    "Judge: your Rollout, Flagger or pipeline stays in charge": ("gate",),
    "Deliver: tidegate moves the traffic": (
        "init",
        "doctor",
        "plan",
        "deliver",
        "status",
        "approve",
        "resume",
        "rollback",
        "report",
        "serve",
    ),
    "See it run, on this machine": ("setup", "fleet"),
    "What they stand on": ("model", "engine", "rollout", "workflow", "slo", "audit", "completion"),
}
"""The commands of the top help in the order of need. The others are for editors, workflows and checks of a spec."""
NAME_WIDTH = max(len(name) for names in SECTIONS.values() for name in names)
HINT = "--state, --tracking-uri, --context, -o, -q and other global options: see `tidegate --help`."


def _parameters(declared: Callable[..., None]) -> list[Any]:
    """The options that a function declares, as Typer makes them."""
    holder = typer.Typer(add_completion=False)
    holder.command()(declared)
    command: Any = typer.main.get_command(holder)
    return list(command.params)


def _print_version(value: bool) -> None:
    from tidegate import __version__

    if value:
        print(f"tidegate {__version__}")
        raise typer.Exit


def _version(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, expose_value=False, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None: ...


@cache
def _shown() -> list[Any]:
    return _parameters(global_options)


@cache
def _hidden() -> list[Any]:
    """Of a command: its help points to `tidegate --help`."""
    hidden = [copy.copy(each) for each in _shown()]
    for each in hidden:
        each.hidden = True
    return hidden


def _in_words(parameter: Any) -> None:
    """Have help name a value by a word, not by its type in Python; choices stay listed."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar = str(parameter.metavar or parameter.name).upper()
        shown = name if parameter.required else f"[{name}]"
        parameter.get_usage_pieces = lambda _: [shown]
        if not parameter.type_descriptor.is_choice:
            parameter.display_type_rich = lambda **_: None
        return
    kind = parameter.type_descriptor.annotation
    (kind,) = get_args(kind) or (kind,)
    if parameter.metavar is None and not parameter.is_flag:
        parameter.metavar = WORDS.get(kind.__name__)


class Everywhere(Mixed):
    """What commands and groups do alike."""

    def get_params(self, ctx: Any) -> list[Any]:
        """With the options that no command declares itself."""
        *own, last = super().get_params(ctx)
        for each in own:
            _in_words(each)
        return [*own, *self.added_params(), last]

    def added_params(self) -> list[Any]:
        """The options of all commands, hidden."""
        return _hidden()

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

    def added_params(self) -> list[Any]:
        """The global options, hidden, but those that the command declares itself."""
        own = {name for each in self.params for name in each.opts}
        return [each for each in _hidden() if own.isdisjoint(each.opts)]

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

    def added_params(self) -> list[Any]:
        return [*_parameters(_version), *_shown()]

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of need; the reference follows it."""
        first = [name for names in SECTIONS.values() for name in names]
        return [*first, *(name for name in super().list_commands(ctx) if name not in first)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Commands first: who asks for help at the top looks for one."""
        for title, names in SECTIONS.items():
            rows = [(name, self.commands[name].get_short_help_str()) for name in names]
            with formatter.section(title):
                # One column for all sections.
                formatter.write_dl(rows, col_spacing=2 + NAME_WIDTH - max(map(len, names)))
        options = [record for each in self.get_params(ctx) if (record := each.get_help_record(ctx))]
        with formatter.section("Global options, before or after the command"):
            formatter.write_dl(options)


def add_command(app: typer.Typer, command: Callable[..., int] | typer.Typer) -> None:
    """Add a command, or a group with its commands; what is in no section of the top help is hidden."""
    hidden = _name_of(command) not in {name for names in SECTIONS.values() for name in names}
    if not isinstance(command, typer.Typer):
        app.command(cls=Command, hidden=hidden)(command)
        return
    for each in command.registered_commands:
        each.cls = Command
    own = command.info.cls
    kind = own if isinstance(own, type) else Group
    app.add_typer(command, cls=kind, hidden=hidden)


def _name_of(command: Callable[..., int] | typer.Typer) -> str:
    return str(command.info.name) if isinstance(command, typer.Typer) else command.__name__
