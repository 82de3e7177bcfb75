"""What a delivery writes to Git: which fields of which files, in which words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from pipelines.model import Plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitFileSpec, GitSpec, filled
from pipelines.spec.yaml_fields import FieldFile, with_values
from registry.model import number_of
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError

TRAILER = "Tidegate-Delivery"
"""The line of a commit's message by which a delivery knows its own."""


class WantedFile(Value):
    """What one file has to say."""

    path: str
    object: str = ""
    fields: Mapping[str, str]
    """By JSON pointer."""


class FieldEdit(Value):
    """One field of one file, before and after."""

    path: str
    object: str = ""
    """`KIND/NAME` of its document; empty for the only one."""
    field: str
    """A JSON pointer."""
    before: str
    after: str


class FileChanges(Value):
    """What has to be written so that files say what is wanted."""

    edits: tuple[FieldEdit, ...]
    files: Mapping[str, str]
    """Whole texts of the files that change."""
    others: tuple[str, ...] = ()
    """Fields that somebody else has changed; they stay as they are."""


def image_of(plan: Plan, spec: Delivery, engine: str) -> str:
    """The image that clusters run for an engine of the plan; empty where it is unknown before a delivery is opened."""
    records = {each.name: each.image for each in (plan.engine, plan.champion_engine) if each}
    settled = plan.resolved.images if plan.resolved else {}
    own = spec.engine.image.reference if spec.engine.image else ""
    return settled.get(engine) or records.get(engine) or own


def wanted_of_wave(spec: Delivery, git: GitSpec, wave: int, *, engine: str, image: str) -> tuple[WantedFile, ...]:
    """What the files of a wave's regions have to say once they serve that engine.

    A file that speaks for all regions is written with the last wave: before, no single value would be true.
    """
    waves = spec.regions.waves
    return tuple(_wanted(spec, git, waves[wave - 1], engine, image, whole=wave == len(waves)))


def wanted_of_regions(
    spec: Delivery, git: GitSpec, regions: Sequence[str] = (), *, engine: str, image: str
) -> tuple[WantedFile, ...]:
    """The same of some regions, by default all, whenever they were promoted."""
    named = regions or spec.regions.names
    return tuple(_wanted(spec, git, named, engine, image, whole=set(named) == set(spec.regions.names)))


def _wanted(
    spec: Delivery, git: GitSpec, regions: Iterable[str], engine: str, image: str, *, whole: bool
) -> Iterator[WantedFile]:
    values = values_of(spec, engine, image)
    for region in regions:
        for file in git.files:
            if file.is_of_each_region:
                yield _filled(file, {**values, "region": region})
    for file in git.files if whole else ():
        if not file.is_of_each_region:
            yield _filled(file, values)


def values_of(spec: Delivery, engine: str, image: str) -> dict[str, str]:
    """What placeholders stand for, but for the region."""
    place, _, digest = image.partition("@")
    # A port has a colon too, and a slash behind it.
    head, colon, tail = place.rpartition(":")
    return {
        "image": image,
        "repository": head if colon and "/" not in tail else place,
        "digest": digest,
        "version": number_of(engine),
        "engine": engine,
        "model": spec.model.name,
        "delivery": spec.metadata.name,
    }


def _filled(file: GitFileSpec, values: Mapping[str, str]) -> WantedFile:
    where = {"region": values["region"]} if "region" in values else {}
    return WantedFile(
        path=filled(file.paths.get(values.get("region", ""), file.path), where),
        object=filled(file.object, where),
        fields={filled(field, where): filled(value, values) for field, value in file.set.items()},
    )


def paths_of(wanted: Iterable[WantedFile]) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(each.path for each in wanted))


def changes_to(
    wanted: Sequence[WantedFile], found: Mapping[str, str], instead_of: Sequence[WantedFile] | None = None
) -> FileChanges:
    """What has to be edited in the files that were found.

    Args:
        wanted: what they have to say.
        found: their texts, by path.
        instead_of: the same fields with what they say now; those that say anything else are not edited.

    Raises:
        SpecError: a file or a field is not there, or cannot be replaced alone.
    """
    texts, edits, others = dict(found), list[FieldEdit](), list[str]()
    for number, each in enumerate(wanted):
        if each.path not in texts:
            raise SpecError([Problem(each.path, 0, "", "no such file in the repository", "a YAML file, written once")])
        there, fields = FieldFile(texts[each.path], each.path), dict[str, str]()
        for field, after in each.fields.items():
            before = there.value(field, within=each.object)
            if before == after:
                continue
            if instead_of is not None and before != instead_of[number].fields[field]:
                others.append(f"{each.path}: {field}")
                continue
            fields[field] = after
            edits.append(FieldEdit(path=each.path, object=each.object, field=field, before=before, after=after))
        texts[each.path] = with_values(texts[each.path], fields, file=each.path, within=each.object)
    changed = {path: text for path, text in texts.items() if text != found[path]}
    return FileChanges(edits=tuple(edits), files=changed, others=tuple(others))


def subject_line(plan: Plan, places: Iterable[str]) -> str:
    """The first line of a commit that brings a version."""
    return f"{plan.version.name} {plan.on_trial} serves {', '.join(places)}"


def back_line(model: str, engine: str, places: Iterable[str]) -> str:
    """The first line of a commit that takes one back."""
    return f"{model} {engine} again serves {', '.join(places)}"


def message_of(subject: str, edits: Iterable[FieldEdit], trailers: Mapping[str, str], *, reason: str = "") -> str:
    """A commit's whole message; `trailers` are the lines at its end that programs read."""
    lines = [f"{each.path}: {each.field}: {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in edits]
    last = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    # No line of others' words may pass for a trailer.
    parts = [subject, " ".join(reason.split()), "\n".join(lines), last]
    return "\n\n".join(part for part in parts if part) + "\n"


def trailers_of(delivery: str, version: str, previous: str) -> dict[str, str]:
    """Of a commit: by which delivery, which model version is served, and which one was before."""
    return {TRAILER: delivery, "Tidegate-Version": version, "Tidegate-Previous": previous}


def edit_line(edit: FieldEdit) -> str:
    """One edit, as people read it."""
    name = PurePosixPath(edit.path)
    return f"{name}: {edit.field} becomes {edit.after}" + (f", and was {edit.before}" if edit.before else "")
