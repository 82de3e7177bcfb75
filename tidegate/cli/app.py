"""Every command's name, options and help; what a command does is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.audit_app import audit
from tidegate.cli.engine_app import engine
from tidegate.cli.gate_app import gate
from tidegate.cli.notify_app import notify
from tidegate.cli.options import (
    SPEC,
    STATE,
    As,
    InCI,
    JUnit,
    Output,
    PlanOutput,
    Spec,
    SshKey,
    State,
    Summary,
    TokenCommand,
    TokenFile,
    Tracking,
    TrustFile,
)
from tidegate.cli.rollout_app import rollout
from tidegate.cli.serve_app import serve
from tidegate.cli.slo_app import slo
from tidegate.cli.stage_app import stage
from tidegate.cli.workflow_app import workflow

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
fleet = typer.Typer(help="The fleet on this machine: engines, proxies, Prometheus.")
model = typer.Typer(help="Model versions in the registry.")
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


@app.command()
def deliver(
    spec: Spec = SPEC,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
    users: Annotated[
        bool, typer.Option("--users", help="Play the users that `traffic` in the spec describes.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep-fleet", help="Leave the fleet up when this command started it.")
    ] = False,
    version: Annotated[
        str | None, typer.Option(help="The version's number; default: the one that `model.from` points at.")
    ] = None,
    metrics_address: Annotated[
        str,
        typer.Option(
            help="Where /metrics is served meanwhile: HOST:PORT; 0.0.0.0 for scrapes from outside, port 0 for any."
        ),
    ] = "127.0.0.1:0",
    ci: InCI = False,
    junit: JUnit = None,
    summary: Summary = None,
    trust: TrustFile = None,
    ssh_key: SshKey = None,
    token_file: TokenFile = None,
    token_command: TokenCommand = None,
) -> int:
    """Deliver the challenger to every region, or take it back.

    Starts engines, moves user traffic and MLflow aliases. When a gate fails, on an error and on
    Ctrl-C every region goes back to the champion. Changes no model version's files.

    \b
    Examples:
      tidegate deliver delivery.yaml
      tidegate deliver delivery.yaml --users --output json
      tidegate deliver delivery.yaml --metrics-address 0.0.0.0:9464
      tidegate deliver delivery.yaml --ci
    """
    from pipelines.trust import trust_at
    from tidegate.cli.ci import reports_wanted
    from tidegate.cli.commands.deliver import run
    from tidegate.cli.prover import Means

    return run(
        spec,
        state,
        tracking_uri,
        as_json=output is Output.JSON,
        users=users,
        keep=keep,
        version=version,
        metrics_address=metrics_address,
        reports=reports_wanted(ci=ci, junit=junit, summary=summary),
        trusted=trust_at(trust, spec.parent),
        means=Means(ssh_key, token_file, token_command),
    )


@app.command()
def resume(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    by: Annotated[
        str | None, typer.Option(help="Who carries it on, where the spec says that a name is enough.")
    ] = None,
    ssh_key: SshKey = None,
    token_file: TokenFile = None,
    token_command: TokenCommand = None,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Carry a delivery whose process died to its end, here: finished steps are not repeated.

    Moves traffic and aliases as `deliver` does. What a region no longer shows, because it went back by itself,
    is done again. A verdict that was given stands: then every region goes back. Refused while a process carries it,
    and to those whom `resume` in the spec does not name, when somebody else has asked for it.

    \b
    Examples:
      tidegate resume 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
      tidegate resume 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f --ssh-key ~/.ssh/id_ed25519
    """
    from pipelines.trust import trust_at
    from tidegate.cli.commands.resume import run
    from tidegate.cli.heir import Heir
    from tidegate.cli.prover import Means

    # What was kept in MLflow is believed by nobody's word: the trust file lies here, and not beside the kept spec.
    heir = Heir(by, Means(ssh_key, token_file, token_command), trust_at(trust, Path()))
    return run(delivery, state, tracking_uri, heir, as_json=output is Output.JSON)


@app.command()
def approve(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    asked: Annotated[str, typer.Argument(metavar="STEP", help="What is asked: a step's id, wave@2, or freeze.")],
    by: Annotated[str | None, typer.Option(help="Who says so, where the spec says that a name is enough.")] = None,
    reason: Annotated[str, typer.Option(help="Why; a refusal needs one.")] = "",
    refuse: Annotated[bool, typer.Option("--refuse", help="Say no: the delivery is taken back.")] = False,
    ssh_key: SshKey = None,
    token_file: TokenFile = None,
    token_command: TokenCommand = None,
    write_statement: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer nothing yet: write what is to be signed, and print its digest."),
    ] = None,
    statement: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was written there; with --signature or a token.")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its SSH signature, made where the key is.")
    ] = None,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
) -> int:
    """Answer a delivery that waits for an approval; the answer stands in its ledger.

    Moves nothing itself: the step that waits reads the answer there, and counts it when it is proven who gave it,
    or when the spec says that names are enough. `freeze` lets a delivery go on though a freeze holds. Of each
    person the last answer before the step begins counts.

    \b
    Examples:
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --ssh-key ~/.ssh/id_ed25519
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --refuse --reason "sale starts at noon" --ssh-key KEY
      tidegate approve 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f wave@2 --by ann
    """
    from pipelines.trust import trust_at
    from tidegate.cli.commands.approve import Answer, run
    from tidegate.cli.prover import Means

    means = Means(ssh_key, token_file, token_command)
    answer = Answer(delivery, asked, by, reason, refuse, means, write_statement, statement, signature)
    return run(answer, state, tracking_uri, trust_at(trust, Path()))


@app.command()
def plan(
    spec: Spec = SPEC,
    state: State = STATE,
    tracking_uri: Tracking = None,
    trust: TrustFile = None,  # noqa: ARG001 - its callback passes it on
    output: Annotated[PlanOutput, typer.Option("--output", help="How to report.")] = PlanOutput.TEXT,
) -> int:
    """Show every step of a delivery, what each gate needs, and how long it takes. Changes nothing.

    \b
    Examples:
      tidegate plan delivery.yaml
      tidegate plan delivery.yaml --output json
      tidegate plan delivery.yaml --output markdown > comment.md
    """
    from tidegate.cli.commands.plan import run

    return run(spec, state, tracking_uri, output=output.value)


@app.command()
def status(spec: Spec = SPEC, state: State = STATE, tracking_uri: Tracking = None, output: As = Output.TEXT) -> int:
    """Show the last delivery, whether it still runs, and what every region serves. Changes nothing.

    Exits with 4 when a region cannot be seen or serves nobody.

    \b
    Examples:
      tidegate status
      tidegate status delivery.yaml --output json
    """
    from tidegate.cli.commands.status import run

    return run(spec, state, tracking_uri, as_json=output is Output.JSON)


@app.command()
def rollback(
    spec: Spec = SPEC,
    to: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Further back: `previous`, or a version's number.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="With --to: start it again where it is not warm.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --to: do not ask.")] = False,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Take every region back, now: to the version that production had before the delivery, and never past it.

    Needs the kubeconfig and the spec only: users first, then the records, where MLflow answers. Stops the delivery
    that runs, here or elsewhere. Said again it changes nothing; further back is --to, which asks first.

    \b
    Examples:
      tidegate rollback delivery.yaml
      tidegate rollback delivery.yaml --to previous
      tidegate rollback delivery.yaml --to 6 --yes
    """
    from tidegate.cli.commands.rollback import Asked, run

    asked = Asked(spec, state, tracking_uri, to=to, start=start, yes=yes)
    return run(asked, as_json=output is Output.JSON)


@app.command()
def report(
    spec: Spec = SPEC,
    state: State = STATE,
    tracking_uri: Tracking = None,
    last: Annotated[int, typer.Option(min=1, help="How many deliveries, newest last.")] = 1,
    target: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("report.html"),
) -> int:
    """Write the last deliveries as one self-contained HTML page.

    \b
    Examples:
      tidegate report delivery.yaml --last 3 --to report.html
    """
    from tidegate.cli.commands.report import run

    return run(spec, state, tracking_uri, last=last, target=target)


@app.command()
def traffic(
    spec: Spec = SPEC,
    state: State = STATE,
    seconds: Annotated[float | None, typer.Option(min=1, help="Stop after this long; default: at Ctrl-C.")] = None,
) -> int:
    """Play the users of every region, as `traffic` in the spec describes them.

    Writes one record for each request (times and counts, never prompts); says at the end how many failed.

    \b
    Examples:
      tidegate traffic delivery.yaml --seconds 60
    """
    from tidegate.cli.commands.traffic import run

    return run(spec, state, seconds=seconds)


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path()) -> int:
    """Write a delivery.yaml, a golden set and users' prompts to start from. Overwrites nothing.

    \b
    Examples:
      tidegate init support
    """
    from tidegate.cli.commands.init import run

    return run(folder)


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="delivery, trust, gates, batch or answer.")] = "delivery") -> int:
    """Print the JSON schema of a spec, or of a line that `gate stream` reads or writes, for editors and checks.

    \b
    Examples:
      tidegate schema delivery > delivery.schema.json
      tidegate schema batch
    """
    from tidegate.cli.commands.schema import run

    return run(kind)


@app.command()
def doctor(
    spec: Spec = SPEC,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Of the spec; repeatable; all when not given.")
    ] = None,
    controller_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Argo Rollouts controller runs.")
    ] = "argo-rollouts",
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Look for what would break a delivery in a region's cluster, and say why and what to do. Changes nothing.

    Exits with 1 when a finding is an error or a warning, with 4 when a region cannot be reached.

    \b
    Examples:
      tidegate doctor delivery.yaml
      tidegate doctor --region eu-west-1 --output json
    """
    from tidegate.cli.commands.doctor import Asked, run

    asked = Asked(tuple(region or ()), controller_namespace, state, tracking_uri)
    return run(spec, asked, as_json=output is Output.JSON)


@app.command()
def setup() -> int:
    """Bring what the fleet on this machine needs: Prometheus, a compiler, the engine environment.

    Installs packages as root, or says what to run; creates the engine environment at its fixed path
    (TIDEGATE_ENGINE_HOME, default /opt/tidegate/engine). Does nothing when all is there.

    \b
    Examples:
      tidegate setup
    """
    from tidegate.cli.output import note
    from tidegate.cli.setup import run_setup

    run_setup(note)
    return 0


app.command("notify")(notify)


@fleet.command("up")
def fleet_up(
    spec: Spec = SPEC,
    state: State = STATE,
    tracking_uri: Tracking = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once every region serves.")] = False,
) -> int:
    """Start the fleet and serve the champion in every region until Ctrl-C.

    \b
    Examples:
      tidegate fleet up delivery.yaml --detach
    """
    from tidegate.cli.commands.fleet import up

    return up(spec, state, tracking_uri, detach=detach)


@fleet.command("down")
def fleet_down(state: State = STATE) -> int:
    """Drain and stop everything that the fleet runs on this machine.

    \b
    Examples:
      tidegate fleet down
    """
    from tidegate.cli.commands.fleet import down

    return down(state)


@model.command("register")
def model_register(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder: safetensors, tokenizer, config.")],
    alias: Annotated[str | None, typer.Option(help="champion or challenger.")] = None,
    description: Annotated[str, typer.Option(help="What this version is.")] = "",
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Register a folder as the next version of a model, with a digest of every file.

    \b
    Examples:
      tidegate model register support-llm ./export --alias challenger
    """
    from tidegate.cli.commands.model import register

    return register(
        name, folder, state, tracking_uri, alias=alias, description=description, as_json=output is Output.JSON
    )


@model.command("list")
def model_list(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """List a model's versions, their aliases and digests. Changes nothing.

    \b
    Examples:
      tidegate model list support-llm
    """
    from tidegate.cli.commands.model import versions

    return versions(name, state, tracking_uri, as_json=output is Output.JSON)


@model.command("alias")
def model_alias(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    version: Annotated[str, typer.Argument(help="The version's number.")],
    alias: Annotated[str, typer.Argument(help="champion, challenger or previous.")],
    state: State = STATE,
    tracking_uri: Tracking = None,
) -> int:
    """Say what a version is for. Moves the alias when another version has it.

    \b
    Examples:
      tidegate model alias support-llm 2 challenger
    """
    from tidegate.cli.commands.model import set_alias

    return set_alias(name, version, alias, state, tracking_uri)
