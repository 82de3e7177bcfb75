"""The weights of a model version on this disk, by the headers of its safetensors files."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from engine_images.errors import NotAModel
from engine_images.memory import Tensor

HEADER_LIMIT_BYTES = 100_000_000
"""The format's own limit; a larger number means that the file is something else."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Entry:
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]
    """Where its bytes begin and end, counted from the end of the header."""


_HEADER = TypeAdapter(dict[str, _Entry | dict[str, str]])
"""By tensor; `__metadata__` is the one entry that is none."""


def read_weights(folder: Path) -> tuple[Tensor, ...]:
    """What the weights in the Hugging Face directory `folder` consist of.

    Raises:
        NotAModel: there are no safetensors files, or one of them is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotAModel(f"{folder} has no *.safetensors file", hint="register a Hugging Face directory")
    return tuple(tensor for file in files for tensor in read_header(file)[0])


def read_header(file: Path) -> tuple[tuple[Tensor, ...], int]:
    """The tensors of one file by its header, and the size that the header promises of the file.

    The header is a JSON object behind its length as eight bytes.

    Raises:
        NotAModel: the file is something else, or cut short within the header.
    """
    try:
        with file.open("rb") as stream:
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            if length > HEADER_LIMIT_BYTES:
                raise NotAModel(
                    f"{file} is not a safetensors file: its header would be {length} bytes",
                    hint="register the version again from a whole Hugging Face folder",
                )
            header = _HEADER.validate_json(stream.read(length))
    except (struct.error, ValueError) as error:
        raise NotAModel(
            f"{file} is not a safetensors file: its header cannot be read",
            hint="register the version again from a whole Hugging Face folder",
        ) from error
    entries = {name: entry for name, entry in header.items() if isinstance(entry, _Entry)}
    data = max((entry.data_offsets[1] for entry in entries.values()), default=0)
    tensors = tuple(Tensor(name, entry.dtype, entry.shape) for name, entry in entries.items())
    return tensors, _LENGTH.size + length + data
