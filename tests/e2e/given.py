"""What is there before a story begins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from e2e.machine import Machine
from e2e.spec import MODEL, PROMPTS, REGION, write_golden, write_spec
from e2e.story import Story
from fakes.waiting import until

from pipelines.adapters.chat import OpenAIChat
from registry.model import Alias
from rollouts.model import EngineSet
from tidegate.testing import write_tiny_model


class Given:
    """What is there before."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._machine = story.machine

    def a_fleet(self) -> None:
        """The champion serves; there is a golden set of its own answers. A fleet that is up is taken as it is."""
        write_spec(self._machine.folder)
        if not (self._machine.folder / "exports").exists():
            register(self._machine, seed=0, alias=Alias.CHAMPION)
        if self._machine.region(REGION) is None:
            started = self._machine.tidegate("fleet", "up", "--detach")
            assert started.code == 0, started.err
        self._story.champion = self._machine.registry.resolve(MODEL, Alias.CHAMPION).version
        if not (self._machine.folder / "golden.jsonl").exists():
            write_golden(self._machine.folder, asyncio.run(_answers(self._story.region().stable)))

    def a_healthy_challenger(self) -> None:
        """The champion's weights in another export."""
        self._story.challenger = register(self._machine, seed=0, alias=Alias.CHALLENGER)

    def a_challenger_with_other_weights(self) -> None:
        """It answers everything, and nothing as the champion does."""
        self._story.challenger = register(self._machine, seed=1, alias=Alias.CHALLENGER)

    def users(self) -> None:
        """People who ask all the time."""
        users = self._story.users = self._machine.start("fleet", "up", "--users")

        def served() -> bool:
            assert users.runs, users.finish()
            return any(request.ok for request in self._story.requests())

        until("users are served", served)


def register(machine: Machine, *, seed: int, alias: Alias) -> str:
    """Register one more export; equal seeds make equal weights."""
    # Not by the command, which loads MLflow each time.
    return machine.registry.register(MODEL, write_export(machine, seed=seed), alias=alias).version


def write_export(machine: Machine, *, seed: int) -> Path:
    """A Hugging Face folder that differs from every other, be it in a stamp only."""
    exports = machine.folder / "exports"
    exports.mkdir(exist_ok=True)
    export = write_tiny_model(exports / str(len(list(exports.iterdir())) + 1), seed=seed)
    settings = export / "generation_config.json"
    # Next to no chance in what users get, so that equal versions answer them alike.
    stamp = {"transformers_version": f"5.0+{export.parent.name}", "temperature": 0.01}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | stamp), encoding="utf-8")
    return export


async def _answers(stable: EngineSet | None) -> dict[str, str]:
    assert stable is not None, "no stable"
    chat = OpenAIChat()
    return {prompt: (await chat.ask(stable.url, MODEL, prompt, max_tokens=24)).text for prompt in PROMPTS}
