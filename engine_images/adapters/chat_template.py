"""A process that renders one chat template, `python -m` this module, and may take little for it.

The template comes with the model. Jinja's sandbox keeps it from Python, but two nested loops run for hours and a
string can be multiplied until the machine has no memory left: the kernel's limits end both.

Reads `Work` as JSON from stdin; writes `{"text": ...}` or `{"error": ...}` to stdout.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypedDict

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Work(TypedDict):
    """What is to be rendered, and what it may take."""

    template: str
    messages: Sequence[Mapping[str, str]]
    tokens: Mapping[str, str]
    """`bos_token` and its like."""
    cpu_seconds: int
    memory_bytes: int


def main() -> None:
    """Render what stdin says, within its limits."""
    work: Work = json.load(sys.stdin)
    limit(work["cpu_seconds"], work["memory_bytes"])
    json.dump(rendered(work), sys.stdout)


def limit(cpu_seconds: int, memory_bytes: int) -> None:
    """Let the kernel end this process when it takes more; it may write no file and start no other process."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def rendered(work: Work) -> dict[str, str]:
    """The text, or what the template says against it."""
    try:
        template = _sandbox().from_string(work["template"])
        text = template.render(
            messages=work["messages"], add_generation_prompt=True, tools=None, documents=None, **work["tokens"]
        )
    except MemoryError:
        return {"error": f"it needs more than {work['memory_bytes'] >> 20} MB"}
    except TemplateError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (a template can fail in any way that Python can)
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text}


def _sandbox() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    # Jinja's own `tojson` escapes HTML characters, which would become other tokens.
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


if __name__ == "__main__":
    main()
