"""The model under trial, from a person's factory.

A factory takes nothing, or the folder of the model version's files, and returns a `torch.nn.Module` and its inputs: a
tuple of positional or a dict of named arguments, or a function that makes either for a shape (`inputs(8, 128)`).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .job import TrialFailure, failure_of, named

SEED = 0
"""Every process must make the same model, or its outputs could not be compared."""

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of one forward call."""


@dataclass
class LoadedModel:
    """A model in evaluation mode on its device, and what it is called with."""

    model: Any
    calls: dict[str, Call]
    """By name of the shape: `8x128`, or `example`."""
    device: str

    def samples(self, name: str) -> int:
        """How many inputs one call takes: the first dimension of its first tensor."""
        positional, named = self.calls[name]
        first = next(iter(tensors((positional, named))), None)
        return int(first.shape[0]) if first is not None and first.dim() else 1


def load_factory(name: str) -> Callable[..., Any]:
    """The function that `name` means.

    Raises:
        Failure: no such module or function, or the module does not import.
    """
    module_name, _, function = name.rpartition(":")
    if not module_name:
        raise TrialFailure("wrong_factory", f"{name}: found no colon; expected MODULE:FUNCTION or PATH.py:FUNCTION")
    try:
        module = _from_file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
    except TrialFailure:
        raise
    except Exception as error:
        raise TrialFailure("wrong_factory", f"{module_name} cannot be imported: {named(error)}") from error
    found = getattr(module, function, None)
    if not callable(found):
        offered = ", ".join(sorted(each for each, value in vars(module).items() if _is_own(value, module))) or "none"
        raise TrialFailure("wrong_factory", f"{module_name} has no function {function}; it has {offered}")
    return found  # type: ignore[no-any-return]


def make(factory: Callable[..., Any], shapes: list[list[int]], device: str, files: str | None) -> LoadedModel:
    """Call the factory and its inputs.

    Raises:
        Failure: it does not return what a factory returns, or has no such shapes.
    """
    import torch

    chosen = _device(device)
    torch.manual_seed(SEED)
    try:
        made = factory(*_files_for(factory, files))
    except TrialFailure:
        raise
    except Exception as error:
        raise failure_of(error) or TrialFailure("wrong_factory", f"the factory failed: {named(error)}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise TrialFailure(
            "wrong_factory", f"the factory returned {_kind(made)}; expected a torch.nn.Module and its inputs, as a pair"
        )
    model, inputs = made
    model = model.eval().to(chosen)
    torch.manual_seed(SEED)
    calls = {name: _moved(call, chosen) for name, call in _calls(inputs, shapes)}
    return LoadedModel(model, calls, chosen)


def _files_for(factory: Callable[..., Any], files: str | None) -> tuple[Path, ...]:
    if not inspect.signature(factory).parameters:
        return ()
    if files is None:
        raise TrialFailure("wrong_factory", "the factory takes a model version's files, which `engine build` has")
    return (Path(files),)


def tensors(value: Any) -> Iterator[Any]:
    """Every tensor in nested tuples, lists, dicts and the outputs that models return."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)


def _calls(inputs: Any, shapes: list[list[int]]) -> Iterator[tuple[str, Call]]:
    if not callable(inputs):
        if shapes:
            raise TrialFailure(
                "wrong_shape", "the factory returns its inputs, not a function of a shape: leave shapes out"
            )
        yield "example", _call(inputs)
        return
    if not shapes:
        raise TrialFailure("wrong_shape", "the factory makes inputs for a shape: say which, such as 8x128")
    for shape in shapes:
        name = "x".join(str(size) for size in shape)
        try:
            made = inputs(*shape)
        except Exception as error:
            raise failure_of(error) or TrialFailure(
                "wrong_shape", f"no inputs of shape {name}: {named(error)}"
            ) from error
        yield name, _call(made)


def _call(inputs: Any) -> Call:
    if isinstance(inputs, dict):
        return (), inputs
    if isinstance(inputs, tuple):
        return inputs, {}
    raise TrialFailure("wrong_factory", f"the inputs are {_kind(inputs)}; expected a tuple or a dict of them")


def _moved(call: Call, device: str) -> Call:
    import torch

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    positional, named = call
    return tuple(moved(value) for value in positional), {name: moved(value) for name, value in named.items()}


def _device(asked: str) -> str:
    import torch

    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        raise TrialFailure("no_device", "torch sees no GPU here")
    return "cuda" if there and asked != "cpu" else "cpu"


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise TrialFailure("wrong_factory", f"{path} is no Python file")
    # As when Python runs the file: it may import what lies next to it.
    sys.path.append(str(path.resolve().parent))
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_own(value: Any, module: Any) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__ and not isinstance(value, type)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
