"""Every command's name, options and help; what a command does is imported when it is called."""

from __future__ import annotations

import typer

from tidegate.cli.engine_app import engine
from tidegate.cli.groups.audit import audit
from tidegate.cli.groups.delivery import approve, deliver, plan, report, resume, rollback, status
from tidegate.cli.groups.fleet import fleet, setup, traffic
from tidegate.cli.groups.gate import gate
from tidegate.cli.groups.model import model
from tidegate.cli.groups.project import doctor, init, notify, schema
from tidegate.cli.groups.rollout import rollout
from tidegate.cli.groups.serve import serve
from tidegate.cli.groups.slo import slo
from tidegate.cli.groups.stage import stage
from tidegate.cli.groups.workflow import workflow

app = typer.Typer(
    name="tidegate",
    help="Take a model version to every production region, a little traffic at a time, and back when it is worse.",
    epilog="Exit codes: 0 delivered, 1 rolled back or gate failed, 2 usage or spec error, 3 inconclusive, "
    "4 something outside was not there, 5 a record is not genuine, 70 a bug in tidegate, 130 stopped by Ctrl-C. "
    "Add --debug to any command for the whole error.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(fleet, name="fleet")
app.add_typer(model, name="model")
app.add_typer(gate, name="gate")
app.add_typer(slo, name="slo")
app.add_typer(engine, name="engine")
app.add_typer(rollout, name="rollout")
app.add_typer(stage, name="stage")
app.add_typer(workflow, name="workflow")
app.add_typer(audit, name="audit")
app.command("serve")(serve)


app.command()(deliver)
app.command()(resume)
app.command()(approve)
app.command()(plan)
app.command()(status)
app.command()(rollback)
app.command()(report)
app.command()(traffic)
app.command()(init)
app.command()(schema)
app.command()(doctor)
app.command()(setup)
app.command("notify")(notify)
