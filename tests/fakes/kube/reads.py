"""How objects are chosen: selectors of labels and fields (Kubernetes, "Labels and Selectors")."""

from __future__ import annotations

from collections.abc import Callable

from fakes.kube.refusal import bad_request

from rollouts.kube.objects import at
from tidegate.core.model import Json

Selector = Callable[[Json], bool]


def selected(labels: str, fields: str) -> Selector:
    """What has these labels (`key=value`, or `key` with any value) and fields (`path=value`), all of them.

    Raises:
        Refusal: another kind of term, which nothing of tidegate's sends (400).
    """
    if set("!() ") & set(labels + fields):
        raise bad_request(f"unable to parse requirement: {labels} {fields}")
    by_label = [term.partition("=") for term in labels.split(",") if term]
    by_field = [term.partition("=") for term in fields.split(",") if term]

    def chosen(found: Json) -> bool:
        has = found.get("metadata", {}).get("labels") or {}
        return all(has.get(key) == value if sign else key in has for key, sign, value in by_label) and all(
            at(found, *path.split(".")) == value for path, _, value in by_field
        )

    return chosen
