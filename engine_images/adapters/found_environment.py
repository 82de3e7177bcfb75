"""An environment with vLLM that somebody else made: a stock image's Python, a team's own. Looked at, never changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pydantic import ValidationError

from engine_images.arguments.serving import loaders_in
from engine_images.choices import EnginePlatform
from engine_images.environment.found import EnvironmentFacts, environment_problems
from engine_images.environment.recipe import RECIPES
from engine_images.errors import EnvironmentMissing
from engine_images.model import EngineEnvironment

PYTHON_VARIABLE = "TIDEGATE_ENGINE_PYTHON"
"""Names the interpreter, such as `/usr/bin/python3` in `vllm/vllm-openai`."""

SECONDS = 60.0


def found_environment(python: Path, platform: EnginePlatform | None) -> EngineEnvironment:
    """The environment of that interpreter, for `platform`, or for whichever it is.

    Raises:
        EnvironmentMissing: it does not run, or cannot serve; with every reason.
    """
    facts = _facts(python)
    problems = list(environment_problems(facts, platform))
    if problems:
        raise EnvironmentMissing(
            f"the environment of {python} cannot serve: {'; '.join(problems)}",
            hint=f"name another with {PYTHON_VARIABLE}, or leave it unset and run: tidegate setup",
        )
    return EngineEnvironment(
        python=str(python),
        vllm=facts.packages[facts.vllm or ""],
        recipe=facts.digest,
        platform=facts.platform,
        site_packages=facts.site_packages,
        loaders=loaders_in(facts.packages.__contains__),
    )


def _facts(python: Path) -> EnvironmentFacts:
    # -I: neither this folder nor a variable of ours may add packages.
    command = [str(python), "-I", str(RECIPES / "describe_environment.py")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        return EnvironmentFacts.model_validate_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError) as error:
        raise EnvironmentMissing(
            f"{python} does not say what it has installed ({type(error).__name__})",
            hint=f"{PYTHON_VARIABLE} names a Python interpreter with vLLM",
            detail=getattr(error, "stderr", None) or str(error),
        ) from error
