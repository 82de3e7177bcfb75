"""What a pair of answers says once they are read: likeness and refusals; their words stay behind."""

from __future__ import annotations

from gates.evidence.batch import PairedAnswer, PairedReply
from gates.model import EngineReply
from gates.ports import Embedder
from gates.text import declines, nearness, similarity


def paired_answer(
    stable: EngineReply | None,
    canary: EngineReply | None,
    *,
    embedder: Embedder | None = None,
) -> PairedAnswer:
    """Read what arrived of a pair; an answer that did not is None, and then nothing is alike.

    Without an embedder likeness is that of words (F1), with one that of meaning.
    """
    return PairedAnswer(
        stable=read_reply(stable) if stable else None,
        canary=read_reply(canary) if canary else None,
        similarity=_alike(stable.text, canary.text, embedder) if stable and canary else None,
    )


def read_reply(reply: EngineReply) -> PairedReply:
    """Read one answer."""
    return PairedReply(
        ttft=reply.ttft_seconds,
        itl=reply.itl_seconds,
        e2e=reply.duration_seconds,
        output_tokens=reply.output_tokens,
        finish_reason=reply.finish_reason,
        refusal=declines(reply.text),
    )


def _alike(one: str, other: str, embedder: Embedder | None) -> float | None:
    if not one.strip() and not other.strip():
        return None
    # Also for texts without words, which have no embedding.
    if embedder is None or one == other:
        return similarity(one, other)
    return nearness(*embedder.embed([one, other]))
