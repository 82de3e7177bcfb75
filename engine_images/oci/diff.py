"""How two engines differ, part by part. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from engine_images.oci.inspect import EngineImage
from tidegate.core.model import Value


class Part(StrEnum):
    """What of an image is compared, in the order in which it is told."""

    IMAGE = "image"
    MODEL = "model"
    ARGUMENT = "argument"
    ENVIRONMENT = "environment"
    KEY = "key factor"
    PACKAGE = "package"
    LAYER = "layer"
    FILE = "file"


class Difference(Value):
    """One thing that is not the same in both."""

    part: Part
    name: str
    a: str | None
    """In the first image; None when it is not there."""
    b: str | None


def differences(a: EngineImage, b: EngineImage) -> tuple[Difference, ...]:
    """Everything that differs; nothing for two images with the same engine on the same base."""
    first, second = _facts(a), _facts(b)
    return tuple(found for part in Part for found in _compared(part, first[part], second[part]))


def arguments(words: Sequence[str]) -> dict[str, str]:
    """A command line as flags and their values; a flag alone has an empty one."""
    flags: dict[str, list[str]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            flags[flag] = [value] if value else []
        else:
            flags.setdefault(flag, []).append(word)
    return {name: " ".join(values) for name, values in flags.items()}


def _facts(image: EngineImage) -> dict[Part, Mapping[str, str]]:
    engine = image.engine
    return {
        Part.IMAGE: {
            "platform": f"{image.platform.os}/{image.platform.architecture}",
            "entrypoint": " ".join(image.entrypoint),
            "signature": "yes" if image.signature else "none",
        },
        Part.MODEL: {
            "name": engine.model.name,
            "version": engine.model.version,
            "digest": engine.model.digest,
            "source": engine.model.source,
            **{f"sampling {name}": f"{value:g}" for name, value in engine.model.sampling.items()},
        },
        Part.ARGUMENT: arguments(engine.launch.arguments)
        | {"drain_seconds": str(engine.launch.drain_seconds), "warm_up": " ".join(map(str, engine.launch.warm_up))},
        Part.ENVIRONMENT: engine.launch.environment,
        Part.KEY: engine.key.factors if engine.key else {},
        Part.PACKAGE: image.packages,
        Part.LAYER: dict(_layers(image)),
        Part.FILE: image.files,
    }


def _layers(image: EngineImage) -> Iterator[tuple[str, str]]:
    """By title; those of the base are told apart by their place."""
    for place, layer in enumerate(image.layers, 1):
        title = layer.title
        yield (f"{title} {place}" if [held.title for held in image.layers].count(title) > 1 else title), layer.digest


def _compared(part: Part, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield Difference(part=part, name=name, a=a.get(name), b=b.get(name))
