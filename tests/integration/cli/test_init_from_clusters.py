"""`tidegate init --from-rollout` against API servers on sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.clusters.existing import NAMESPACE, existing
from fakes.kube.api import Api
from fakes.kube.server import FakeServers, serving
from fakes.terminal import Tidegate

from pipelines.adapters.specs import read_delivery

CONTEXTS = ("prod-eu-west-1", "stage")
FROM = ("init", "--from-rollout", "support-llm", "--context", CONTEXTS[0])


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServers]:
    """Each with a Rollout of its own."""
    cases = dict(zip(CONTEXTS, ("helm_rollout", "sidecars"), strict=True))
    apis = {name: Api(existing(case, name=name, real_time=True)) for name, case in cases.items()}
    with serving(apis, tmp_path, namespace=NAMESPACE) as servers:
        monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
        yield servers


def test_a_draft_is_written_told_and_read_by_every_command(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path
) -> None:
    said = tidegate(*FROM)
    assert said.code == 0, said.err
    assert said.out.startswith(
        "delivery.yaml: a draft from Rollout support-llm in serving (prod-eu-west-1); managed by"
    )
    assert read_delivery(tmp_path / "delivery.yaml").metadata.name == "support"
    for title in ("Found, and taken over", "Yours to decide", "There today, and not in what", "Next"):
        assert title in said.out
    assert "tidegate doctor delivery.yaml" in said.out
    written = (tmp_path / "delivery.yaml").read_text(encoding="utf-8")
    assert "not-for-files" not in written + said.out + said.err
    assert {call.verb for call in clusters.api(CONTEXTS[0]).calls} <= {"get", "list"}
    assert "secrets" not in {call.plural for call in clusters.api(CONTEXTS[0]).calls}


def test_another_container_as_data_to_another_file(clusters: FakeServers, tidegate: Tidegate, tmp_path: Path) -> None:
    words = ("--context", "stage", "--namespace", NAMESPACE, "--container", "vllm", "--name", "talk", "-o", "json")
    said = tidegate("init", "new/spec.yaml", "--from-rollout", "chat", *words)
    assert said.code == 0, said.err
    assert (said.json["file"], said.json["delivery"]) == ("new/spec.yaml", "talk")
    assert {each["kind"] for each in said.json["findings"]} >= {"found", "decide", "unsupported"}
    assert said.json["next"][1]["command"].startswith("tidegate model add talk")
    assert read_delivery(tmp_path / "new/spec.yaml").regions.waves == (("stage",),)


def test_a_file_that_is_there_stays_and_no_cluster_is_asked(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path
) -> None:
    (tmp_path / "delivery.yaml").write_text("mine")
    said = tidegate(*FROM)
    assert (said.code, said.err) == (
        2,
        "tidegate: delivery.yaml is already there; name another file, which ends in .yaml\n",
    )
    assert (tmp_path / "delivery.yaml").read_text() == "mine"
    assert clusters.api(CONTEXTS[0]).calls == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--from-rollout", "other", "--context", CONTEXTS[0]), (2, "there is no Rollout other in serving")),
        (("--from-rollout", "support-llm", "--context", "mars"), (2, "no context mars")),
        (("--adopt",), (2, "--adopt: only with --from-rollout")),
        (("--context", CONTEXTS[0]), (2, "--context: only with --from-rollout")),
        (("-o", "json"), (2, "-o: only with --from-rollout")),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(
    clusters: FakeServers, tidegate: Tidegate, tmp_path: Path, words: tuple[str, ...], answer: tuple[int, str]
) -> None:
    said, (code, message) = tidegate("init", *words), answer
    assert (said.code, message in said.err, said.err.count("\n")) == (code, True, 1), said.err
    assert not (tmp_path / "delivery.yaml").exists()
