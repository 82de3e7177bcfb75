"""A version's tags as Unity Catalog takes them: fewer than a large model has files, short, and with plainer keys.

Digests of files are one document, and it and every other long value are compressed and kept in parts. A document of
which parts are missing, as after a crash between two writes, does not decompress: it counts as not written.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping

from pydantic import TypeAdapter, ValidationError

from registry.conventions import DIGEST, FILE_PREFIX
from registry.errors import UnfitModel

MOST_TAGS = 50
MOST_CHARACTERS = 1000
"""Of one value. Both limits: https://docs.databricks.com/aws/en/database-objects/tags#constraints."""
FILES = "tidegate.files"
"""The document of all digests."""
_OURS = "tidegate."
_DOT = "__"
"""No key of ours has two underscores; Unity Catalog allows no dot."""
_PART = re.compile(r"(?P<key>tidegate__.+)__(?P<number>\d+)of(?P<count>\d+)")
_FILES = TypeAdapter(dict[str, str])


def catalog_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """As Unity Catalog keeps them; the digest over all files goes last, as it says that theirs are there.

    Raises:
        UnfitModel: they are more than one version may have.
    """
    files = {key.removeprefix(FILE_PREFIX): value for key, value in tags.items() if key.startswith(FILE_PREFIX)}
    ours = {key: value for key, value in tags.items() if key.startswith(_OURS) and not key.startswith(FILE_PREFIX)}
    kept = {key: value for key, value in tags.items() if not key.startswith(_OURS)}
    if files:
        kept |= _parts(FILES, json.dumps(files, sort_keys=True, separators=(",", ":")))
    for key in sorted(ours, key=lambda key: key == DIGEST):
        kept |= {_plain(key): ours[key]} if len(ours[key]) <= MOST_CHARACTERS else _parts(key, ours[key])
    if len(kept) > MOST_TAGS:
        raise UnfitModel(
            f"digests of {len(files)} files, and what else is noted, take {len(kept)} tags; "
            f"Unity Catalog has {MOST_TAGS} for a version",
            hint="log the version with fewer files: larger shards, and no other checkpoints",
        )
    return kept


def read_catalog_tags(kept: Mapping[str, str]) -> dict[str, str]:
    """What `catalog_tags` was given; what is not whole is left out."""
    tags = {_dotted(key): value for key, value in kept.items() if not _PART.fullmatch(key)}
    tags |= dict(_long_values(kept))
    return tags | {FILE_PREFIX + path: digest for path, digest in _files_in(tags.pop(FILES, "{}")).items()}


def _files_in(document: str) -> Mapping[str, str]:
    """Anybody who may edit the version may have written it."""
    try:
        return _FILES.validate_json(document)
    except ValidationError:
        return {}


def _parts(key: str, value: str) -> dict[str, str]:
    text = b64encode(zlib.compress(value.encode(), 9)).decode()
    parts = [text[start : start + MOST_CHARACTERS] for start in range(0, len(text), MOST_CHARACTERS)]
    return {f"{_plain(key)}__{number}of{len(parts)}": part for number, part in enumerate(parts, 1)}


def _long_values(kept: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    groups: dict[tuple[str, int], dict[int, str]] = {}
    for key, value in kept.items():
        if found := _PART.fullmatch(key):
            groups.setdefault((found["key"], int(found["count"])), {})[int(found["number"])] = value
    for (key, _), parts in groups.items():
        try:
            text = "".join(part for _, part in sorted(parts.items()))
            yield _dotted(key), zlib.decompress(b64decode(text, validate=True)).decode()
        except (ValueError, zlib.error):
            continue


def _plain(key: str) -> str:
    return key.replace(".", _DOT)


def _dotted(key: str) -> str:
    return key.replace(_DOT, ".") if key.startswith(_plain(_OURS)) else key
