"""Pods whose engines keep samples by the gate's own code, and the kubelet that brings them what they are to keep."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.clusters.region import NAME, ClusterRegion
from fakes.kube.api import Reply
from fakes.kube.requests import Asked

from engine_images.entrypoint.answers import Message
from engine_images.entrypoint.sampling.samples import SAMPLES_PATH, Samples, seal
from rollouts.kube.resources import CONFIG_MAPS, PODS
from rollouts.manifests.conventions import samples_request
from tidegate.core.names import DELIVERY, VERSION


class SampledPods:
    """Every pod of a region's delivery, with the samples that its engine holds."""

    def __init__(self, region: ClusterRegion, folder: Path) -> None:
        self._region, self._folder = region, folder
        self.engines: dict[str, Samples] = {}
        self.bring()

    def bring(self) -> None:
        """Kubelets see what is there now: pods that came, and the ConfigMap in all of them."""
        region = self._region
        for pod in region.cluster.list(PODS, labels=f"{DELIVERY}={NAME}"):
            name, version = pod["metadata"]["name"], pod["metadata"]["labels"][VERSION]
            if name not in self.engines:
                engine = Samples(self._folder / name, version, clock=lambda: region.time.now().timestamp())
                self.engines[name] = engine
                region.api.pods[name] = lambda asked, engine=engine: _served(engine, asked)
        said = region.cluster.find(CONFIG_MAPS, samples_request(NAME))
        for name, engine in self.engines.items():
            file = self._folder / name
            if said:
                (text,) = said["data"].values()
                file.write_text(text, encoding="utf-8")
            else:
                file.unlink(missing_ok=True)
            engine.look()

    def of(self, version: str) -> list[str]:
        """The names of the pods of a version."""
        found = self._region.cluster.list(PODS, labels=f"{DELIVERY}={NAME},{VERSION}={version}")
        return sorted(pod["metadata"]["name"] for pod in found)

    def answers(self, pod: str, prompt: str) -> None:
        """A user's request, which is over and was sealed."""
        import base64

        engine = self.engines[pod]
        settings = engine._settings
        assert settings is not None, f"{pod} has not heard of anything"
        sample = {"at": 1.0, "pair": "p", "prompt": prompt, "answer": "yes", "whole": True, "seconds": 0.5}
        engine._buffer.add(seal(json.dumps(sample).encode(), base64.b64decode(settings.public_key)), settings)

    def held(self) -> int:
        """What all engines hold."""
        return sum(len(engine._buffer) for engine in self.engines.values())


def _served(engine: Samples, asked: Asked) -> Reply:
    assert asked.path.startswith(SAMPLES_PATH), asked.path
    headers = [(name.encode(), value.encode()) for name, value in asked.headers.items()]
    got: list[Message] = []

    async def send(message: Message) -> None:
        got.append(message)

    # It waits for nobody.
    serving = engine.serve({"method": asked.method, "path": asked.path, "headers": headers}, send)
    try:
        serving.send(None)
    except StopIteration:
        return Reply(got[0]["status"], got[1]["body"], {"content-type": "application/json"})
    raise AssertionError("an engine waits before it gives samples away")
