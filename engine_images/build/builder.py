"""Builds an engine: compile once, start what was packed, compare it with eager, and only then keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from engine_images.adapters.engine_root import digests_of, fixed_run_folder, key_of, serve, tidy_cache, write_root
from engine_images.adapters.shelf import Shelf
from engine_images.build.attempt import Attempt
from engine_images.build.model import Built, Compiled, Order, Record
from engine_images.compile.logprobs import Scored, compare
from engine_images.compile.proof import Proof, Started, added
from engine_images.errors import NotProven
from engine_images.manifest import CompileKey, EngineManifest
from engine_images.ports import Scorer, Servers
from tidegate.core.errors import OutsideError

Progress = Callable[[str], None]
KeyOf = Callable[[Order, Path], CompileKey]
"""What a machine says of everything that a compiled model depends on; the folder is for its use."""

REPEATABLE = {"PYTHONHASHSEED": "0", "TIDEGATE_REPRODUCIBLE": "1"}
"""For the start that compiles: the same inputs are to give the same bytes."""

MUST_LOAD = {"VLLM_FORCE_AOT_LOAD": "1"}
"""For the start that proves: vLLM fails instead of compiling again. It is not in the key."""


class Builder:
    """Builds one engine after the other with the adapters that it was given."""

    def __init__(self, shelf: Shelf, servers: Servers, scorer: Scorer, *, key_of: KeyOf = key_of) -> None:
        """`key_of` asks the engine environment."""
        self._shelf = shelf
        self._servers = servers
        self._scorer = scorer
        self._key_of = key_of

    async def build(self, order: Order, progress: Progress) -> Built:
        """The engine, found or built; `progress` gets a line before each long step.

        Raises:
            NotProven: the compile cache is missed, or the compiled model is another one than the eager.
            OutsideError: vLLM did not start.
        """
        key = await asyncio.to_thread(self._key_of, order, self._shelf.folder(f"key-{order.model.digest[:16]}"))
        engine = order.name(key)
        async with self._shelf.only_one(engine, "builds this engine", progress):
            found = self._shelf.find(engine)
            if found and _holds(found.record, order):
                return found
            if order.compiled:
                return await self._proven(order, engine, key, progress)
            self._write(order, EngineManifest(engine=engine, model=order.model, launch=order.launch), cache=None)
            return self._shelf.keep(Record(engine=engine, model=order.model.uri, tolerance=order.tolerance))

    async def _proven(self, order: Order, engine: str, key: CompileKey, progress: Progress) -> Built:
        name = order.compile_name(key)
        async with self._shelf.only_one(name, "compiles the same model", progress):
            compiled = self._shelf.compiled(name) or await self._compile(order, name, progress)
        cache = self._shelf.cache(name)
        digests = await asyncio.to_thread(digests_of, cache)
        manifest = EngineManifest(engine=engine, model=order.model, launch=order.launch, key=key, cache=digests)
        self._write(order, manifest, cache)
        proof = await self._prove(order, manifest, compiled, progress)
        problems = proof.problems()
        if problems:
            # The next build compiles anew: what is wrong may have been this cache alone.
            self._shelf.forget_compiled(name)
            raise NotProven("; ".join(problems), hint=f"see the logs in {self._shelf.folder(engine)}")
        return self._shelf.keep(Record.of(engine, order.model.uri, proof))

    async def _compile(self, order: Order, name: str, progress: Progress) -> Compiled:
        """Start once with an empty cache; what vLLM puts there is kept."""
        progress("compiling the model (a minute or more)")
        self._write(order, EngineManifest(engine=name, model=order.model, launch=order.launch), cache=None)
        attempt = Attempt("cold", self._shelf.folder(name), fixed_run_folder(name), environment=REPEATABLE)
        started, _ = await self._make(order, name, attempt)
        compiled = Compiled(cold=started)
        tidy_cache(attempt.cache)
        self._shelf.keep_compiled(name, compiled, attempt.cache)
        return compiled

    async def _prove(self, order: Order, manifest: EngineManifest, compiled: Compiled, progress: Progress) -> Proof:
        folder = self._shelf.folder(manifest.engine)
        progress("starting it eagerly, to compare with")
        attempt = Attempt("eager", folder, folder / "eager", arguments=("--enforce-eager",))
        eager, expected = await self._make(order, manifest.engine, attempt)
        progress("starting what was built")
        attempt = Attempt("built", folder, folder / "built", environment=MUST_LOAD)
        given: tuple[Scored, ...] = ()
        try:
            built, given = await self._make(order, manifest.engine, attempt)
        except OutsideError:
            # Told to fail instead of compiling again, it did: its log and its key say why.
            built = attempt.told()
            if built.log.init_seconds is not None or built.key is None:
                raise
        return Proof(
            cold=compiled.cold,
            built=built,
            eager=eager,
            rebuilt=added(manifest.cache, await asyncio.to_thread(digests_of, attempt.cache)),
            agreement=compare(expected, given) if given else None,
            tolerance=order.tolerance,
        )

    async def _make(self, order: Order, engine: str, attempt: Attempt) -> tuple[Started, tuple[Scored, ...]]:
        launch = serve(
            order,
            self._shelf.root(engine),
            attempt.run,
            arguments=attempt.arguments,
            environment=attempt.environment,
        )
        return await attempt.make(launch, self._servers, self._scorer, order.served_name, order.prompts)

    def _write(self, order: Order, manifest: EngineManifest, cache: Path | None) -> None:
        write_root(self._shelf.root(manifest.engine), manifest, order.folder, cache)


def _holds(record: Record, order: Order) -> bool:
    """Whether what was proven then is enough now."""
    return record.agreement is None or record.agreement.within(order.tolerance)
