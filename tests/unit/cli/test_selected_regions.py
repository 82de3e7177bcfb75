"""`--region` and `--context` say which regions of a spec are meant, and never another cluster than the spec's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.spec.delivery import Delivery
from tidegate.cli import main
from tidegate.cli.options import selected_regions
from tidegate.core.errors import UsageError
from tidegate.core.spec import load_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
CLUSTERS = EXAMPLES / "kubernetes/delivery.yaml"
LOCAL = EXAMPLES.parent / "tidegate/cli/templates/delivery.yaml"


@pytest.fixture
def clusters() -> Delivery:
    return load_spec(CLUSTERS, Delivery)


def test_nothing_given_is_all_of_them(clusters: Delivery) -> None:
    assert selected_regions(clusters, (), None) == ()


def test_a_context_is_the_region_that_it_reaches(clusters: Delivery) -> None:
    assert selected_regions(clusters, (), "prod-us-east-1") == ("us-east-1",)
    assert selected_regions(clusters, ["us-east-1"], "prod-us-east-1") == ("us-east-1",)


@pytest.mark.parametrize(
    ("named", "context", "said"),
    [
        (["mars"], None, r"--region: found 'mars'; expected one of eu-west-1, us-east-1"),
        ([], "kind-dev", r"--context: found 'kind-dev'; the spec says prod-eu-west-1 for "),
        (["eu-west-1"], "prod-us-east-1", r"--context: found 'prod-us-east-1'"),
    ],
)
def test_what_the_spec_does_not_say_is_refused(
    clusters: Delivery, named: list[str], context: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        selected_regions(clusters, named, context)


def test_a_fleet_of_this_machine_has_no_context() -> None:
    with pytest.raises(UsageError, match="no cluster"):
        selected_regions(load_spec(LOCAL, Delivery), (), "kind-dev")


@pytest.mark.parametrize("command", ["status", "rollback", "doctor"])
def test_commands_ask_no_other_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, str(CLUSTERS), "--context", "kind-dev"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tidegate: --context: found 'kind-dev'; the spec says ")
