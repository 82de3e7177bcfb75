"""Reads SLOs, whatever format each document of a text is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from slo.adapters.promtool import refusal
from slo.formats.openslo import OpenSlo
from slo.formats.sloth import PrometheusServiceLevel, PrometheusV1
from slo.model import SloGroup
from tidegate.core.model import Loc
from tidegate.core.spec import Document, Problem, SpecError, parse_documents

MONTH = timedelta(days=30)
"""The period of an SLO whose format does not say one."""

Spec = PrometheusV1 | PrometheusServiceLevel | OpenSlo

EXPECTED = (
    "version: prometheus/v1, or apiVersion: sloth.slok.dev/v1 with kind: PrometheusServiceLevel, "
    "or apiVersion: openslo/v1alpha with kind: SLO"
)
_KINDS: dict[tuple[object, object], type[Spec]] = {
    ("sloth.slok.dev/v1", "PrometheusServiceLevel"): PrometheusServiceLevel,
    ("openslo/v1alpha", "SLO"): OpenSlo,
}


def read_all(texts: Mapping[str, str], *, default_period: timedelta = MONTH) -> dict[str, list[SloGroup]]:
    """The SLOs of every document of the texts of all files whose rules go to one Prometheus, by the files' names.

    No SLO is in two.

    Raises:
        SpecError: with every problem of every file.
    """
    documents: dict[str, list[tuple[Document, Spec]]] = {}
    problems: list[Problem] = []
    for file, text in texts.items():
        try:
            documents[file] = parse_documents(text, _kind_of, file=file, expected=EXPECTED)
        except SpecError as error:
            problems += error.problems
    groups = {file: [_group(spec, default_period) for _, spec in found] for file, found in documents.items()}
    read_so_far = [(*item, group) for file in groups for item, group in zip(documents[file], groups[file], strict=True)]
    problems += _twice(read_so_far)
    problems += (problem for document, spec, _ in read_so_far for problem in _no_promql(document, spec))
    if problems:
        raise SpecError(problems)
    return groups


def _kind_of(data: object) -> type[Spec] | None:
    if not isinstance(data, Mapping):
        return None
    if "version" in data:
        return PrometheusV1
    return _KINDS.get((data.get("apiVersion"), data.get("kind")))


def _group(spec: Spec, default_period: timedelta) -> SloGroup:
    if isinstance(spec, OpenSlo):
        return spec.group(default_period)
    group = spec.group()
    return group.model_copy(
        update={"slos": tuple(slo.model_copy(update={"window": default_period}) for slo in group.slos)}
    )


def _no_promql(document: Document, spec: Spec) -> Iterator[Problem]:
    for where, query in _queries(spec.model_dump(by_alias=True)):
        if words := refusal(query):
            yield document.problem(where, repr(query), f"PromQL; Prometheus says: {words}")


def _queries(part: object, where: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """What an SLI asks, whatever the format, each with its place."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            if isinstance(value, str) and key.lower().endswith("query"):
                yield (*where, key), value
            yield from _queries(value, (*where, key))
    elif isinstance(part, tuple):
        for number, each in enumerate(part):
            yield from _queries(each, (*where, number))


def _twice(read_so_far: Iterable[tuple[Document, Spec, SloGroup]]) -> Iterator[Problem]:
    """Two SLOs with one id would write the same series."""
    first: dict[str, Problem] = {}
    for document, spec, group in read_so_far:
        for index, slo in enumerate(group.slos):
            named = document.problem(_place(spec, index), f"the id {slo.id} twice", "")
            there = first.setdefault(slo.id, named)
            if there is not named:
                yield replace(named, expected=f"it once; it is in {there.file}:{there.line}")


def _place(spec: Spec, index: int) -> Loc:
    """Where the SLO with this number is named."""
    if isinstance(spec, OpenSlo):
        return ("spec", "objectives", index)
    return ("spec", "slos", index, "name") if isinstance(spec, PrometheusServiceLevel) else ("slos", index, "name")
