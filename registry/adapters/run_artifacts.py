"""Files of runs and of new versions that lie in an object store, without MLflow's library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from registry.adapters.version_files.anywhere import is_in_object_store
from registry.model import PendingVersion, StoredRun
from registry.ports import ArtifactFiles, ArtifactStore, VersionLog


class ObjectArtifacts:
    """An `ArtifactStore`. What lies elsewhere is left to another one."""

    def __init__(self, objects: ArtifactFiles, elsewhere: ArtifactStore) -> None:
        self._objects, self._elsewhere = objects, elsewhere

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        if is_in_object_store(run.artifacts):
            self._objects.put(run.artifacts, f"{folder}/{path.name}".lstrip("/"), path)
        else:
            self._elsewhere.upload(run, path, folder)

    def files(self, run: StoredRun, folder: str) -> Sequence[str]:
        if not is_in_object_store(run.artifacts):
            return self._elsewhere.files(run, folder)
        below = "/".join(filter(None, (run.artifacts.rstrip("/"), folder)))
        return ["/".join(filter(None, (folder, path))) for path in self._objects.listed(below)]

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        if not is_in_object_store(run.artifacts):
            self._elsewhere.download(run, path, target)
            return
        with target.open("wb") as file:
            for part in self._objects.parts(run.artifacts, path):
                file.write(part)


class ObjectVersions:
    """A `VersionLog`, of which only the files are ours. What lies elsewhere is left to another one."""

    def __init__(self, objects: ArtifactFiles, elsewhere: VersionLog) -> None:
        self._objects, self._elsewhere = objects, elsewhere

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        return self._elsewhere.begin(experiment, name, kind)

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        if not is_in_object_store(pending.artifacts):
            self._elsewhere.upload(pending, folder)
            return
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self._objects.put(pending.artifacts, file.relative_to(folder).as_posix(), file)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        return self._elsewhere.finish(pending, name, tags, description)
