"""Every command, for `typer docs/commands.py utils docs`, which writes `reference/cli.md`."""

from tidegate.cli import command_line

app = command_line()
