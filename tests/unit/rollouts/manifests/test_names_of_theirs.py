"""A route and a ServiceAccount of others, by their names: used wherever ours would be, and the account is not made."""

from __future__ import annotations

from fakes.clusters.region import NAME, a_fleet, an_image

from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from tidegate.core.model import Json

ROUTE, ACCOUNT = "chat-public", "chat-with-identity"


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
    return rendered(gateway={"name": "public", "route": ROUTE}, pod={"service_account": ACCOUNT})


def one(objects: tuple[Json, ...], kind: str) -> Json:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_the_route_has_its_name_and_the_rollout_moves_its_weights() -> None:
    objects = theirs()
    assert one(objects, "HTTPRoute")["metadata"]["name"] == ROUTE
    (plugin,) = one(objects, "Rollout")["spec"]["strategy"]["canary"]["trafficRouting"]["plugins"].values()
    assert plugin["httpRoute"] == ROUTE


def test_rights_are_to_that_route_and_to_no_other() -> None:
    roles = [each for each in theirs() if each["kind"] == "Role"]
    names = {
        name
        for role in roles
        for rule in role["rules"]
        if rule["resources"] == ["httproutes"]
        for name in rule.get("resourceNames", ())
    }
    assert (len(roles), names) == (2, {ROUTE})


def test_engines_run_as_that_account_which_is_not_made() -> None:
    objects = theirs()
    assert one(objects, "Rollout")["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    assert made == {f"{NAME}-driver", f"{NAME}-guard"}
    assert NAME in {each["metadata"]["name"] for each in rendered() if each["kind"] == "ServiceAccount"}


def test_the_guard_knows_the_route_and_the_policies_the_account() -> None:
    objects = theirs()
    (container,) = next(
        each["spec"]["template"]["spec"]["containers"]
        for each in objects
        if each["metadata"]["name"] == f"{NAME}-guard" and each["kind"] == "Deployment"
    )
    args = container["args"]
    assert args[args.index("--route") + 1] == ROUTE
    policies = [str(each["spec"]) for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    assert sum(f'serviceAccountName == "{ACCOUNT}"' in each for each in policies) == 2
