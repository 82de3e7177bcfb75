"""`tidegate slo export`: what a delivery promises as files for other tools; leaves what others wrote alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.adapters.specs import read_spec
from pipelines.spec.agreement import agreement_of
from pipelines.spec.delivery import CanaryStage, Delivery
from pipelines.spec.fleets import LocalFleet
from pipelines.spec.sections import IN_CLUSTERS
from slo.export import ExportCluster, ExportedFile, ExportRequest, export_files
from slo.model import Labels
from slo.spec import CountedBy
from tidegate.cli.output import Output, print_data
from tidegate.core.access import conflicts_for_rollouts, endpoint_at
from tidegate.core.errors import UsageError
from tidegate.core.files import write_atomically
from tidegate.core.process import note

FileState = Literal["new", "changed", "unchanged"]


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


_LABEL_KEY = re.compile(rf"([a-z0-9.-]{{1,253}}/)?{_LABEL_VALUE.pattern}")


@dataclass(frozen=True)
class ExportOptions:
    """What the command line says about the cluster."""

    prometheus: str
    namespace: str
    labels: tuple[str, ...]
    counted_by: str
    access: Path | None = None
    """How Argo Rollouts says to that Prometheus who asks."""


def export_slos(spec_path: Path, target: Path, asked: ExportOptions, *, output: Output) -> int:
    """Write the files that are not there yet as they should be; leaves every other file of the folder alone."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is no folder", hint="name one with --out")
    files = export_files(_export_request(read_spec(spec_path), spec_path, asked))
    states = {file.name: _state(target / file.name, file) for file in files}
    write_atomically({target / file.name: file.text for file in files if states[file.name] != "unchanged"})
    if output.is_data:
        print_data([_line(target, file, states[file.name]) for file in files], output)
        return 0
    for file in files:
        print(f"{target / file.name}: {states[file.name]}; {file.holds}")
        for reason in file.left_out:
            note(f"not in {target / file.name}: {reason}")
    return 0


def _export_request(spec: Delivery, path: Path, asked: ExportOptions) -> ExportRequest:
    if not spec.slos:
        raise UsageError(f"{path} has no `slos`", hint="add objectives under `slos`")
    if spec.metrics.sources and asked.counted_by == CountedBy.PROXY:
        raise UsageError(
            "--counted-by proxy is of no use with `metrics.sources`", hint="the source of requests says who counts"
        )
    return ExportRequest(
        delivery=spec.metadata.name,
        promises=spec.slos,
        counted_by=CountedBy(asked.counted_by),
        sources=spec.metrics.sources,
        agreement=agreement_of(spec),
        cost=spec.cost,
        stage=(spec.canary or CanaryStage()).within,
        # What is exported is for a cluster; the fleet on this machine has a Prometheus of its own.
        scrape_interval=IN_CLUSTERS if isinstance(spec.fleet, LocalFleet) else spec.scrape_interval,
        cluster=_cluster(asked),
    )


def _cluster(asked: ExportOptions) -> ExportCluster:
    prometheus = endpoint_at(asked.prometheus, asked.access)
    for odd in conflicts_for_rollouts(prometheus):
        where = ".".join(map(str, odd.where))
        raise UsageError(f"{asked.access}: {where}: found {odd.found}; expected {odd.expected}")
    if asked.namespace and not _NAMESPACE.fullmatch(asked.namespace):
        raise UsageError(f"--namespace: found {asked.namespace!r}; expected a name as Kubernetes has them")
    return ExportCluster(prometheus=prometheus, namespace=asked.namespace, labels=_object_labels(asked.labels))


def _object_labels(asked: tuple[str, ...]) -> Labels:
    labels = {}
    for text in asked:
        key, _, value = text.partition("=")
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise UsageError(f"--label: found {text!r}; expected key=value, as Kubernetes has them")
        labels[key] = value
    return labels


def _state(path: Path, file: ExportedFile) -> FileState:
    """Refuses what somebody else wrote: it would be lost."""
    try:
        there = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "new"
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read as what was exported before", hint="move it away, or export to another folder"
        ) from error
    if file.mark not in there:
        raise UsageError(f"{path} was not written by tidegate", hint="move it away, or export to another folder")
    return "unchanged" if there == file.text else "changed"


def _line(target: Path, file: ExportedFile, state: FileState) -> dict[str, object]:
    return {"file": str(target / file.name), "state": state, "holds": file.holds, "left_out": file.left_out}
