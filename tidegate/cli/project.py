"""`tidegate init`, `doctor`, `completion`, and `schema`, hidden: what prepares and checks."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from tidegate.cli.options import SPEC, Namespace, Regions, Spec, selected_regions
from tidegate.cli.settings import Output, given, prints, say
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.files import write_atomically

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipelines.doctor import RegionCheck

EXAMPLE = "support-llm"
"""What the templates call the delivery and its model."""
BESIDES = ("golden.jsonl", "prompts.txt")
ZSH_SOURCED = "compdef _tidegate_completion tidegate"
ZSH_EITHER = f"""if [[ "${{zsh_eval_context[-1]}}" == loadautofunc ]]; then
  _tidegate_completion "$@"
else
  {ZSH_SOURCED}
fi"""


def init(
    folder: Annotated[Path, Argument(help="Folder to write to, or a file that ends in .yaml.")] = Path(),
    from_rollout: Annotated[
        str | None, Option("--from-rollout", metavar="NAME", help="Name this Rollout of the cluster in the spec.")
    ] = None,
    from_route: Annotated[
        str | None, Option("--from-route", metavar="NAME", help="Name the two backends of this HTTPRoute in the spec.")
    ] = None,
    namespace: Namespace = None,
    container: Annotated[
        str | None, Option(metavar="NAME", help="Container that serves; default: the one with vLLM.")
    ] = None,
    name: Annotated[
        str | None, Option(help="Name of the delivery; default: the folder's, the Rollout's, the route's.")
    ] = None,
) -> int:
    """Write a delivery.yaml: an example, or of your Rollout or route.

    Overwrites nothing, and says the next step. The example comes with a golden set and prompts, and its model has the
    folder's name. With --from-rollout the spec names your Rollout, its Services and route, and its steps are the
    weights; with --from-route it names the two backends of an HTTPRoute, and the Deployments behind them. What is yours
    to decide is marked TODO. Nothing is changed in the cluster. Exits with 2 when the file is there already, when the
    Rollout or route is not, or when the route has not two backends, and with 4 when the cluster cannot be read.

    \b
    Examples:
      tidegate init support
      tidegate init --from-rollout support-llm --context prod-eu-west-1 --namespace serving
      tidegate init --from-route support-llm --context prod-eu-west-1 --namespace serving
    """
    path = folder if folder.suffix == ".yaml" else folder / "delivery.yaml"
    if from_rollout and from_route:
        raise UsageError("--from-rollout and --from-route: found both; expected one")
    if source := from_rollout or from_route:
        if path.exists():
            raise UsageError(f"{path} is already there", hint="name another file, which ends in .yaml")
        from pipelines.adapters.fleets import cluster_client
        from rollouts.drafting import drafted, drafted_from_route

        context, draft = given().context, drafted_from_route if from_route else drafted

        async def read() -> str:
            async with cluster_client(context, namespace) as cluster:
                return await draft(cluster, source, context=context or "", container=container, name=name)

        write_atomically({path: asyncio.run(read())})
        say(str(path), f"next: replace what is marked TODO, then: tidegate plan {path}")
        return ExitCode.DELIVERED
    asked = {"--namespace": namespace, "--container": container, "--context": given().context}
    for option, value in asked.items():
        if value:
            raise UsageError(
                f"{option}: only with --from-rollout or --from-route", hint="give it too, or leave this out"
            )
    # As its folder is called, where a delivery may be called so.
    of_folder = re.sub(r"[^a-z0-9]+", "-", path.resolve().parent.name.lower()).strip("-")[:40].strip("-")
    write_example(path, name or of_folder or EXAMPLE)
    say(f"next: tidegate plan --offline {path}")
    return ExitCode.DELIVERED


def write_example(path: Path, name: str = EXAMPLE) -> None:
    """Write the templates, and the schema that editors check them with.

    Raises:
        UsageError: when a file is already there, or cannot be written; nothing is written then.
    """
    templates = files("tidegate.cli.templates")
    texts = {path: templates.joinpath("delivery.yaml").read_text(encoding="utf-8").replace(EXAMPLE, name)}
    texts |= {path.parent / each: templates.joinpath(each).read_text(encoding="utf-8") for each in BESIDES}
    texts[path.parent / "delivery.schema.json"] = schema_text("delivery")
    if existing := [each for each in texts if each.exists()]:
        raise UsageError(f"{existing[0]} is already there", hint="name an empty folder")
    write_atomically(texts)
    print(*texts, sep="\n")


def schema(kind: Annotated[str, Argument(help="delivery, trust, gates or batch.")] = "delivery") -> int:
    """Print a JSON schema, for editors and checks: of a spec, or of a line of evidence.

    \b
    Examples:
      tidegate schema delivery > delivery.schema.json
      tidegate schema batch
    """
    print(schema_text(kind), end="")
    return ExitCode.DELIVERED


def schema_text(kind: str) -> str:
    """The schema as text that is the same on every run.

    Raises:
        UsageError: for a kind that does not exist.
    """
    from gates.evidence.batch import Batch
    from gates.reports.gate_file import GateFile
    from pipelines.spec.delivery import Delivery
    from pipelines.spec.trust import Trust

    known: dict[str, type[BaseModel]] = {"delivery": Delivery, "trust": Trust, "gates": GateFile, "batch": Batch}
    if kind not in known:
        raise UsageError(f"no schema is called `{kind}`", hint=f"known: {', '.join(known)}")
    return json.dumps(known[kind].model_json_schema(by_alias=True), indent=2, sort_keys=True) + "\n"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(help="The shell.", show_default=False)],
) -> int:
    """Print the completion script of a shell.

    \b
    Examples:
      tidegate completion bash > ~/.local/share/bash-completion/completions/tidegate
      tidegate completion zsh > "${fpath[1]}/_tidegate"
      tidegate completion fish > ~/.config/fish/completions/tidegate.fish
    """
    from typer._completion_classes import completion_init
    from typer._completion_shared import get_completion_script

    completion_init()
    script = get_completion_script(prog_name="tidegate", complete_var="_TIDEGATE_COMPLETE", shell=shell).strip()
    # Typer's ends with a call that serves a sourced file alone; compinit loads a file in `fpath` at the first Tab.
    print(script.replace(ZSH_SOURCED, ZSH_EITHER))
    return ExitCode.DELIVERED


def complete(root: Any) -> int:
    """Answer the shell that runs such a script: what may stand at the cursor, one a line."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    return shell_complete(root, {}, "tidegate", "_TIDEGATE_COMPLETE", os.environ["_TIDEGATE_COMPLETE"])


@prints(Output.JSON, Output.YAML)
def doctor(
    spec: Spec = SPEC,
    region: Regions = None,
    controller_namespace: Annotated[
        str, Option(metavar="NAME", help="Namespace of the Argo Rollouts controller.")
    ] = "argo-rollouts",
    only_test: Annotated[
        bool, Option("--send-test", help="Only send a test message to everyone under `notify`.")
    ] = False,
) -> int:
    """Find what would break a delivery in the clusters, and the fix. Changes nothing.

    Addresses of messages come from the environment only, and are never printed. Exits with 1 on an error or a
    warning, with 4 when a region cannot be reached or a message was not accepted, with 2 when a variable is not set.

    \b
    Examples:
      tidegate doctor delivery.yaml
      tidegate doctor --region eu-west-1 --output json
      tidegate doctor delivery.yaml --send-test
    """
    from pipelines.adapters.specs import read_spec
    from pipelines.adapters.trust import named_trust
    from pipelines.doctor import check_git, check_regions, send_test
    from rollouts.doctor.model import Severity
    from rollouts.manifests.spec import ClusterFleetSpec

    read = read_spec(spec)
    if only_test:
        sent = send_test(read)
        told = [{"to": at.form, "url_from_env": at.variable, "problem": problem or None} for at, problem in sent]
        given().show(told, *(f"{at}: {problem or 'accepted'}" for at, problem in sent))
        return ExitCode.OUTSIDE if any(problem for _, problem in sent) else ExitCode.DELIVERED
    fleet: object = read.fleet
    if not isinstance(fleet, ClusterFleetSpec):
        raise UsageError(
            "`doctor` examines clusters; this spec has its fleet on this machine", hint="set `fleet.kind: argo`"
        )
    regions = selected_regions(read, region or (), given().context) or tuple(fleet.regions)
    checks = check_regions(read, fleet, regions, named_trust(spec.parent), controller_namespace)
    if read.git:
        checks["git"] = check_git(read)
    data = [
        one.model_dump(mode="json") | {"region": name, "reachable": not one.problem, "problem": one.problem or None}
        for name, one in checks.items()
    ]
    given().show(data, *findings_lines(checks))
    # A region that could not be looked at counts for more than what was found in others.
    if any(one.problem for one in checks.values()):
        return ExitCode.OUTSIDE
    worse = any(each.severity is not Severity.NOTE for one in checks.values() for each in one.findings)
    return ExitCode.ROLLED_BACK if worse else ExitCode.DELIVERED


def findings_lines(checks: Mapping[str, RegionCheck]) -> Iterator[str]:
    """Region after region: its findings, the worst first; then those that could not be looked at, and why."""
    from pipelines.views.wording import by_reason
    from rollouts.doctor.model import Severity

    marks = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "·"}
    for name, one in checks.items():
        count = Counter(finding.severity for finding in one.findings)
        told = [f"{count[kind]} {kind}{'s' * (count[kind] != 1)}" for kind in Severity if count[kind]]
        if not one.problem:
            yield f"{name}: {', '.join(told) or 'nothing is wrong'}"
        for finding in one.findings:
            yield f"  {marks[finding.severity]} {finding.what} ({finding.code})"
            yield from (f"      seen:  {each}" for each in finding.evidence)
            yield f"      cause: {finding.cause}"
            yield f"      remediation:  {finding.remediation}"
    away = by_reason({name: one.problem for name, one in checks.items() if one.problem})
    yield from (f"{', '.join(names)}: {problem}" for problem, names in away.items())
