"""A ServiceAccount of others, by its name: used wherever ours would be, and not made."""

from __future__ import annotations

from fakes.clusters.region import NAME, a_fleet, an_image

from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from tidegate.core.model import Json

ACCOUNT = "chat-with-identity"


def rendered(**changes: Json) -> tuple[Json, ...]:
    release = Release(
        delivery=NAME,
        region="eu-west-1",
        version="7",
        digest="d",
        image=an_image("7").image,
        guard="registry.example/tidegate@sha256:" + "1" * 64,
        driver=True,
    )
    return render(a_fleet("eu-west-1", admission=True, **changes), release)


def theirs() -> tuple[Json, ...]:
    return rendered(pod={"service_account": ACCOUNT})


def one(objects: tuple[Json, ...], kind: str) -> Json:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_engines_run_as_that_account_which_is_not_made() -> None:
    objects = theirs()
    assert one(objects, "Rollout")["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    assert made == {f"{NAME}-driver", f"{NAME}-guard"}
    assert NAME in {each["metadata"]["name"] for each in rendered() if each["kind"] == "ServiceAccount"}


def test_the_policies_know_it() -> None:
    policies = [str(each["spec"]) for each in theirs() if each["kind"] == "ValidatingAdmissionPolicy"]
    assert sum(f'serviceAccountName == "{ACCOUNT}"' in each for each in policies) == 2
