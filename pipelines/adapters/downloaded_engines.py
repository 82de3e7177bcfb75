"""Model versions for fleets that start engines by themselves: the files, proven, and what the registry says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.model import EngineRecord, ModelVersion
from registry.versions import MlflowRegistry
from rollouts.model import PORT, Engine
from tidegate.core.threads import call_in_thread


@dataclass(frozen=True)
class DownloadedEngines:
    """Engines whose files are on this machine; nothing is built or started."""

    registry: MlflowRegistry
    state: StateFolder
    name: str
    """What requests carry in their `model` field."""

    def folder(self, version: ModelVersion) -> Path:
        """Where the version's files are, once prepared."""
        return self.state.engines / version.digest / "model"

    async def prepare(
        self, version: ModelVersion, progress: Callable[[str], None], record: EngineRecord | None = None
    ) -> Engine:
        """The image that the version's tags name, or else vLLM's command for its files."""
        progress(f"{version.uri}: bringing its files")
        folder = self.folder(version)
        await call_in_thread(self.registry.download, version, folder.parent)
        image = (await call_in_thread(self.registry.tags, version)).get(ENGINE_IMAGE, "")
        command = () if image else ("vllm", "serve", str(folder), "--port", PORT)
        return Engine(
            version=record.name if record else version.version,
            digest=version.digest,
            model=self.name,
            image=image,
            command=command,
            workdir=str(folder),
        )
