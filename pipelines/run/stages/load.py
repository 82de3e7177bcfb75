"""load: both versions get the same load, block after block, before any request of users reaches the canary."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gates.evidence.batch import ArmLoad, Batch, LoadBlock
from gates.evidence.request_record import RequestRecord
from gates.model import Verdict, blind
from pipelines.load import LoadOrder, LoadRequest, arm_load
from pipelines.model import PlanStep
from pipelines.plan.gates import terms_of
from pipelines.run.context import Context
from pipelines.run.evidence import watch
from pipelines.run.regions import both_arms
from pipelines.spec.delivery import LoadStage
from pipelines.spec.policy import load_requests
from rollouts.errors import NotPossible
from rollouts.model import EngineSet
from tidegate.core.process import meanwhile
from tidegate.core.threads import call_in_thread

WARM_UP = 0.5
"""Of a block's length: the load that each arm gets first, which is no evidence. First requests compile kernels."""


async def load(context: Context, step: PlanStep) -> None:
    """Bring blocks of load to both arms until the gates decide.

    Raises:
        Stopped: a gate fails, or the time is over without a verdict, or the canary is gone.
        NotPossible: an arm has no address of its own.
    """
    settings = context.spec.load
    assert settings is not None, f"{step.id} without a load stage"
    assert context.loads is not None, "nobody brings load"
    name = f"load@{step.region}"
    terms = terms_of(context.spec, settings, step.region or "")
    trial = context.trials.open(name, terms, step.id)
    requests = await call_in_thread(load_requests, context.spec, settings, context.folder)
    blocks = LoadBlocks(context, step, settings, await _arms(context, step), requests)
    async with meanwhile(blocks.run()) as sender:

        async def ask(final: bool) -> Sequence[Verdict]:
            if sender.done():
                # It only ever ends by an error, which must not look like a canary that serves nothing.
                sender.result()
            if batch := blocks.drain():
                trial.take(batch)
            return [*trial.verdicts(deadline_passed=final), *blocks.blind()]

        try:
            await watch(context, step, ask, within=settings.within.total_seconds())
        finally:
            context.trials.keep(name)
            if blocks.taken:
                context.journal.note(step.id, "; ".join(map(blocks.told, ("canary", "stable"))))


async def _arms(context: Context, step: PlanStep) -> Mapping[str, EngineSet]:
    """Stable and canary, each at its own address."""
    stable, canary = both_arms(await context.fleet(step).observe())
    for arm in (stable, canary):
        if not arm.url:
            hint = "a load stage needs the address of each arm; leave it out of `stages`"
            raise NotPossible(f"{step.region}: the {arm.role} has no address of its own", hint=hint)
    context.journal.note(step.id, f"load on the stable of {step.region}, which serves its users meanwhile")
    return {"stable": stable, "canary": canary}


def engine_hours(context: Context) -> tuple[float | None, float | None]:
    """Prices of an engine of the champion, and of one on trial: they may take other numbers of accelerators.

    The spec's price is that of the engine which it describes, the one on trial.
    """
    cost, plan = context.spec.cost, context.plan
    if cost is None:
        return None, None
    before, now = (
        int(str(record.settings.get("accelerator_count") or 1)) if record else 1
        for record in (plan.champion_engine, plan.engine)
    )
    return cost.per_engine_hour * before / now, cost.per_engine_hour


class LoadBlocks:
    """Blocks of load on both arms, one pair after the other; a coin decides which arm is first."""

    def __init__(
        self,
        context: Context,
        step: PlanStep,
        settings: LoadStage,
        arms: Mapping[str, EngineSet],
        requests: Sequence[LoadRequest],
    ) -> None:
        """`arms` are by role."""
        self._context, self._step, self._settings = context, step, settings
        self._arms, self._requests = arms, requests
        self._prices = dict(zip(("stable", "canary"), engine_hours(context), strict=True))
        self._processes = settings.processes_of(max(arm.engines for arm in arms.values()))
        # Nobody can know the coin before, and it falls again as it fell when a delivery is looked at afterwards.
        self._coin = random.Random(f"{context.journal.delivery} {step.id}")
        self._needs = max((gate.needs or 0 for gate in step.gates), default=0)
        self._fresh: list[LoadBlock] = []
        self._records: dict[str, list[RequestRecord]] = {role: [] for role in arms}
        self._blind = ""
        self.taken: list[LoadBlock] = []
        """Blocks so far, without those that warm up."""

    async def run(self) -> None:
        """Bring blocks until cancelled."""
        seconds = self._settings.block.total_seconds()
        await self._pair(seconds * WARM_UP)
        while True:
            found = await self._pair(seconds)
            loads = {role: self._load(role, records) for role, records in found.items()}
            for role, records in found.items():
                self._records[role] += records
            stable, canary = loads["stable"], loads["canary"]
            self._blind = "no request of a block ended"
            if stable and canary:
                # Next to a stable that serves nothing every canary would look well.
                served = f"stable answered none of {stable.requests:,} requests in full"
                self._blind = "" if stable.output_tokens else served
            if stable and canary and not self._blind:
                block = LoadBlock(stable=stable, canary=canary)
                self._fresh.append(block)
                self.taken.append(block)
            self._context.journal.progress(
                self._step, "blocks of load", len(self.taken), max(self._needs, len(self.taken))
            )

    def drain(self) -> Batch | None:
        """The blocks that ended since the last call, as evidence; None when there are none."""
        fresh, self._fresh = self._fresh, []
        now = self._context.clock.now().timestamp()
        return Batch(time=now, source="load", blocks=tuple(fresh)) if fresh else None

    def blind(self) -> Iterator[Verdict]:
        """Why the last blocks say nothing, where they do not."""
        if self._blind:
            yield blind(self._blind)

    def told(self, role: str) -> str:
        """What an arm made of all blocks."""
        loads = [getattr(block, role) for block in self.taken]
        rate = sum(load.output_tokens for load in loads) / sum(load.seconds for load in loads)
        records = self._records[role]
        times = [each.ttft_seconds for each in records if each.ok and each.ttft_seconds is not None]
        late = f", TTFT p95 {np.quantile(times, 0.95) * 1000:,.0f} ms" if times else ""
        failed = sum(not each.ok for each in records)
        version = self._arms[role].version
        return f"version {version}: {rate:,.1f} tokens/s{late}, {failed} of {len(records)} failed"

    async def _pair(self, seconds: float) -> Mapping[str, Sequence[RequestRecord]]:
        """One block on each arm: the same requests in the same order."""
        seed = self._coin.getrandbits(32)
        order = list(self._arms)
        self._coin.shuffle(order)
        return {role: await self._block(role, seconds, seed) for role in order}

    async def _block(self, role: str, seconds: float, seed: int) -> Sequence[RequestRecord]:
        engines = self._arms[role]
        concurrency, rate = self._settings.load_of(engines.engines)
        order = LoadOrder(
            url=engines.url,
            model=self._context.plan.name,
            region=self._step.region or "",
            role=role,
            version=engines.version,
            shape=self._settings.shape,
            seconds=seconds,
            concurrency=concurrency,
            rate=rate,
            seed=seed,
        )
        assert self._context.loads is not None, "nobody brings load"
        name = f"{self._step.id}.{role}"
        return await self._context.loads(name, order, self._requests, self._processes)

    def _load(self, role: str, records: Sequence[RequestRecord]) -> ArmLoad | None:
        return arm_load(records, engines=self._arms[role].engines, engine_hour=self._prices[role])
