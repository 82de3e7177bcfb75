"""Arguments by which vLLM loads code, reads files, or sends words elsewhere: not a spec's to say.

Where a spec comes from a pull request these would run on GPU nodes what nobody has looked at, serve weights that were
never proven, or show users' words to others. Who operates the machines may allow each by name and value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from engine_images.arguments.model import Arguments

RUNS_CODE = frozenset(
    {
        *("middleware", "tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "logits-processors"),
        *("worker-cls", "worker-extension-cls", "scheduler-cls", "model-class-overrides", "log-config-file"),
        *("distributed-executor-backend",),
    }
)
"""Each names a class, a module or a file that the engine imports."""

UNPROVEN = frozenset({"lora-modules", "default-mm-loras"})
"""Each brings weights that are no part of the model version."""

REVEALS = frozenset(
    {
        *("allowed-local-media-path", "otlp-traces-endpoint", "enable-log-outputs", "trust-request-chat-template"),
        *("trust-request-mm-kwargs",),
    }
)
"""Files of the machine, or what users and the model said, for others to read; or code of a request that is run."""

WITHIN = {
    "kv-transfer-config": ("kv_connector_module_path",),
    "ec-transfer-config": ("ec_connector_module_path",),
    "kv-events-config": ("endpoint", "replay_endpoint"),
    "speculative-config": ("model",),
    "structured-outputs-config": ("reasoning_parser_plugin",),
    "reasoning-config": ("reasoning_parser_plugin",),
    "compilation-config": ("backend", "inductor_passes", "inductor_compile_config"),
    "profiler-config": ("torch_profiler_dir",),
}
"""The same within arguments that are mappings."""

PLAIN = {"distributed-executor-backend": ("ray", "mp", "uni", "external_launcher"), "compilation-config": ("inductor",)}
"""Values that name nothing of anybody's: vLLM's own."""


def loaded(args: Arguments) -> Iterator[tuple[str, str]]:
    """Each argument that loads or reveals something, as a spec writes it, and what it names."""
    for name, value in args.items():
        if name in RUNS_CODE | UNPROVEN | REVEALS:
            yield from ((name, named) for named in _named(value) if named not in PLAIN.get(name, ()))
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key.replace("-", "_") in WITHIN.get(name, ()):
                    yield from ((f"{name}.{key}", named) for named in _named(inner) if named not in PLAIN.get(name, ()))


def _named(value: JsonValue) -> Iterator[str]:
    """What a value names; nothing where it switches the argument off."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)
    elif value not in (None, False, ""):
        yield str(value).lower() if value is True else str(value)
