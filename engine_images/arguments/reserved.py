"""Arguments of vLLM that a spec cannot set: they follow from something else."""

from __future__ import annotations

RESERVED = {
    "address": ("host", "port", "uds", "root-path", "api-server-count", "headless", "served-model-name", "grpc"),
    "registered model version": (
        *("model", "model-tag", "tokenizer", "hf-config-path", "chat-template", "download-dir"),
        *("revision", "code-revision", "tokenizer-revision"),
    ),
    "rule that no code or pickle of a model version is run": ("trust-remote-code", "load-format"),
    "rest of the spec": ("enforce-eager", "config", "generation-config", "override-generation-config"),
    "way an engine is watched and stopped": ("shutdown-timeout", "enable-tokenizer-info-endpoint", "api-key"),
    "rule that a spec holds no secrets": ("hf-token",),
}
"""By what they follow from. A spec that set one would contradict it."""

_OWNERS = {argument: owner for owner, arguments in RESERVED.items() for argument in arguments}


def owner_of(name: str) -> str | None:
    """What the argument `name`, or its negation, follows from; None for one that a spec may set."""
    return _OWNERS.get(name.removeprefix("no-"))
