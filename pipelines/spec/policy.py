"""What a spec may not say for itself, and the files that it may name.

A spec comes from the one who writes pull requests, and is treated as code: the machine's own files say what it may.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from engine_images.arguments.validation import ALLOWED
from gates.analyses.command import CommandGate
from gates.analyses.quality import QualityGate
from gates.answers.golden import GoldenPrompt, load_golden
from gates.judge.spec import JudgeGate
from pipelines.load import LoadRequest, plain_requests, requests_like
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from pipelines.spec.load import LoadSettings
from pipelines.spec.sections import NotifySpec
from pipelines.spec.trust import OF_SPECS, OUR_FILES, SpecTrust
from registry.files import digest_file
from registry.model import GoldenSet
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.access import CredentialSource, PrometheusEndpoint
from tidegate.core.metadata_servers import is_metadata_server
from tidegate.core.model import Loc, SpecConflict, parts_of
from tidegate.core.spec import Problem, SpecError, bounded_lines
from tidegate.core.text import host_of, is_loopback, redacted

CLUSTER = (".svc", ".svc.cluster.local")


def not_for_a_spec(spec: Delivery, trust: SpecTrust) -> Iterator[SpecConflict]:
    """Everything that the operator would have to allow, and has not."""
    for where, part in parts_of(spec):
        match part:
            case CredentialSource() if where[-1] != "ca":
                yield from _unread(trust, (*where, "env"), *filter(None, [part.env]))
                if part.file and not trust.may_open(part.file):
                    expected = f"a file below {OUR_FILES}, or that file under `spec.files` of trust.yaml"
                    yield SpecConflict((*where, "file"), "a file that specs may not name", expected)
            case PrometheusEndpoint():
                place = (*where, "url") if part.auth else where
                yield from _unasked(trust, place, part.url, guarded=part.auth is not None)
            case JudgeGate():
                yield from _unread(trust, (*where, "api_key_env"), *filter(None, [part.api_key_env]))
                yield from _unasked(trust, (*where, "endpoint"), part.endpoint, guarded=True)
            case CommandGate():
                yield from _unread(trust, (*where, "variables"), *part.variables)
            case NotifySpec():
                yield from _unread(trust, (*where, part.form, "url_from_env"), part.variable)
            case GitSpec():
                yield from _unpushed(trust, (*where, "repository"), part.repository)
            case str() if where[:2] == ("fleet", "regions") and "://" in part:
                if where[3] != "prometheus" or where[-1] == "keda":
                    yield from _unasked(trust, where, part, guarded=False)
    yield from _programs(spec, trust)


def _unread(trust: SpecTrust, where: Loc, *variables: str) -> Iterator[SpecConflict]:
    for variable in variables:
        if not trust.may_read(variable):
            # Not the name: the one who mistook the field for the secret's own place must not find it in a log.
            expected = f"a name that begins with {OF_SPECS}, or that name under `spec.variables` of trust.yaml"
            yield SpecConflict(where, "a variable that specs may not read", expected)


def _unasked(trust: SpecTrust, where: Loc, address: str, *, guarded: bool) -> Iterator[SpecConflict]:
    """An address that is asked because a spec says so; what is `guarded`, only TLS may carry."""
    url = urlsplit(address)
    if is_metadata_server(url.hostname or ""):
        yield SpecConflict(where, redacted(address), "no link-local address: clouds hand out credentials there")
    if guarded and url.scheme == "http" and not _may_be_plain(address, trust):
        expected = f"https, or {host_of(address)} under `spec.endpoints` of trust.yaml"
        yield SpecConflict(where, redacted(address), expected)


def _unpushed(trust: SpecTrust, where: Loc, repository: str) -> Iterator[SpecConflict]:
    if repository.startswith("file:"):
        folder = urlsplit(repository).path
        if not trust.may_open(Path(folder)):
            expected = "ssh or https, or that folder under `spec.files` of trust.yaml"
            yield SpecConflict(where, f"file://{folder}", expected)
    elif "://" in repository:
        yield from _unasked(trust, where, repository, guarded=True)


def _programs(spec: Delivery, trust: SpecTrust) -> Iterator[SpecConflict]:
    """What would run: plugins of vLLM, commands of gates, patches of pods."""
    for argument, named in trust.refused_arguments(spec.engine):
        meant = next(iter(get_close_matches(argument, ALLOWED, n=1, cutoff=0.8)), "none")
        yield SpecConflict(
            ("engine", "vllm", "args", *argument.split(".")),
            f"{named!r} of an argument that a spec may not set by itself",
            f"{meant}, or {named!r} under `spec.plugins.{argument}` of trust.yaml",
        )
    for gate, asked in spec.gates.of(CommandGate).items():
        if asked.run[0] not in trust.commands:
            expected = f"none, or {asked.run[0]} under `spec.commands` of trust.yaml"
            yield SpecConflict(("gates", gate, "run"), f"the program {asked.run[0]!r}", expected)
    if isinstance(spec.fleet, ArgoFleetSpec) and spec.fleet.patches and not trust.pods:
        # They may run any program, and mount any Secret of the namespace.
        yield SpecConflict(("fleet", "patches"), "a change of pods", "none, or `spec.pods: true` in trust.yaml")


def _may_be_plain(address: str, trust: SpecTrust) -> bool:
    host = urlsplit(address).hostname or ""
    named = {host, host_of(address)} & set(trust.endpoints)
    return bool(named) or is_loopback(host) or host.endswith(CLUSTER)


OF_THE_KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))
REPOSITORY = ".git"
"""What lies in the root of a repository."""


def root_of(spec_path: Path) -> Path:
    """Where files that the spec names may lie: its repository, or its own folder where it is in none."""
    folder = spec_path.absolute().parent
    return next((each for each in (folder, *folder.parents) if (each / REPOSITORY).exists()), folder)


def files_elsewhere(spec: Delivery, folder: Path, root: Path) -> Iterator[SpecConflict]:
    """Every named file that lies outside `root`, by a link or not, or is none; one that is missing is nobody's.

    The spec names files by their paths from `folder`; `root` is as `root_of` says, or the operator.
    """
    for where, path in named_files(spec):
        real = (folder / path).resolve()
        if any(real.is_relative_to(each) for each in OF_THE_KERNEL):
            yield SpecConflict(where, str(path), "a file, and nothing of the kernel's")
        elif not real.is_relative_to(root.resolve()):
            expected = f"a file below {root}; TIDEGATE_ROOT names another folder for the files of specs"
            yield SpecConflict(where, f"{path}, which is {real}", expected)
        elif real.exists() and not stat.S_ISREG(real.stat().st_mode):
            yield SpecConflict(where, str(path), "a regular file")


def missing_files(spec: Delivery, folder: Path) -> Iterator[SpecConflict]:
    """Every named file that is not there; its path starts from `folder`, where the spec lies."""
    for where, path in named_files(spec):
        if not (folder / path).exists():
            yield SpecConflict(where, f"{path}: no such file", "the path of a file, relative to the spec")


def named_files(spec: Delivery) -> Iterator[tuple[Loc, Path]]:
    """Every file that a spec names, with where, as it names it; but those of credentials, which no delivery keeps."""
    credentials: Loc = ()
    for where, part in parts_of(spec):
        if isinstance(part, CredentialSource):
            credentials = where
        elif isinstance(part, Path) and where[:-1] != credentials:
            yield where, part


MOST_USER_PROMPTS = 100_000
"""Lines of what users ask; a shadow stage of a day at one pair a second asks fewer."""


def golden_set(spec: Delivery, folder: Path) -> tuple[GoldenPrompt, ...]:
    """The golden set of the offline stage; empty when there is none."""
    if spec.offline is None or spec.offline.dataset is None:
        return ()
    path = folder / spec.offline.dataset
    quality = spec.gates.only(QualityGate)
    return load_golden(path, quality.scorer) if quality else load_golden(path)


def golden_input(spec: Delivery, folder: Path) -> GoldenSet | None:
    """The golden set by its name and digest, as MLflow shows it beside the delivery."""
    if spec.offline is None or spec.offline.dataset is None:
        return None
    return GoldenSet(name=spec.offline.dataset.name, digest=digest_file(folder / spec.offline.dataset))


def user_prompts(spec: Delivery, folder: Path) -> tuple[str, ...]:
    """What users ask, one prompt a line; the golden set's prompts when the spec names no file.

    Raises:
        SpecError: when the file cannot be read, has no prompt, or more than `MOST_USER_PROMPTS`.
    """
    # Answers are only compared with each other here, so questions with known answers serve as well.
    if spec.traffic is None or spec.traffic.prompts is None:
        return tuple(entry.prompt for entry in golden_set(spec, folder))
    return prompts_in(folder / spec.traffic.prompts)


def prompts_in(path: Path) -> tuple[str, ...]:
    """One prompt a line.

    Raises:
        SpecError: as `user_prompts`.
    """
    lines = bounded_lines(path, "one prompt a line", most=MOST_USER_PROMPTS)
    prompts = tuple(line.strip() for line in lines if line.strip())
    if not prompts:
        raise SpecError([Problem(str(path), 1, "", "no prompts", "one prompt a line")])
    return prompts


def load_requests(spec: Delivery, settings: LoadSettings, folder: Path) -> tuple[LoadRequest, ...]:
    """What a load sends, in no particular order.

    Raises:
        SpecError: a file of prompts cannot be read, or has none.
        UsageError: a file of lengths has none.
        OSError: it cannot be read.
    """
    prompts = prompts_in(folder / settings.prompts) if settings.prompts else user_prompts(spec, folder)
    if settings.lengths is None:
        return plain_requests(prompts, settings.max_tokens)
    return requests_like(prompts, (folder / settings.lengths).read_text(encoding="utf-8"))
