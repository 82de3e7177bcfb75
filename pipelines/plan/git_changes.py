"""What a delivery writes to Git: which fields of which files, in which words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pipelines.model import Plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitFileSpec, GitSpec, filled
from pipelines.spec.yaml_fields import FieldFile
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

    def __str__(self) -> str:
        """As people read it."""
        was = f", and was {self.before}" if self.before else ""
        return f"{self.path}: {self.field} becomes {self.after}{was}"


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
    own = spec.engine.image.reference if spec.engine.image else ""
    return plan.resolved.images.get(engine) or records.get(engine) or own


def wanted_of_wave(spec: Delivery, git: GitSpec, wave: int, *, engine: str, image: str) -> list[WantedFile]:
    """What the files of a wave's regions have to say once they serve that engine.

    A file that speaks for all regions is written with the last wave: before, no single value would be true.
    """
    waves = spec.regions.waves
    return wanted_of_regions(spec, git, waves[wave - 1], engine=engine, image=image, whole=wave == len(waves))


def wanted_of_regions(
    spec: Delivery, git: GitSpec, regions: Sequence[str], *, engine: str, image: str, whole: bool
) -> list[WantedFile]:
    """The same of any regions; with `whole` also what speaks for all of them."""
    values = values_of(spec, engine, image)
    own = [file for file in git.files if file.is_of_each_region]
    wanted = [_filled(file, {**values, "region": region}) for region in regions for file in own]
    return wanted + [_filled(file, values) for file in git.files if whole and file not in own]


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
        for field, after in each.fields.items():
            there = FieldFile(texts[each.path], each.path)
            before = there.value(field, within=each.object)
            if before == after:
                continue
            if instead_of is not None and before != instead_of[number].fields[field]:
                others.append(f"{each.path}: {field}")
                continue
            texts[each.path] = there.replaced(field, after, within=each.object)
            edits.append(FieldEdit(path=each.path, object=each.object, field=field, before=before, after=after))
    changed = {path: text for path, text in texts.items() if text != found[path]}
    return FileChanges(edits=tuple(edits), files=changed, others=tuple(others))


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
