"""What the fields of a class mean: the text that follows each of them in its source.

pydantic does the same for every class while it is loaded (`use_attribute_docstrings`), at a sixth of what a command
takes to start; only JSON schemas need it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise


def meanings(cls: type) -> dict[str, str]:
    """Field by field, those of its bases included; nothing of a class whose source is not there."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if "__annotations__" in each.__dict__:
            found |= dict(_written_in(each))
    return found


def _written_in(cls: type) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef), "the source of a class is a class"
    for field, text in pairwise(body.body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            yield field.target.id, inspect.cleandoc(text.value.value)
