"""What Sigstore's policy-controller is told: whose signatures are asked for, and of which images.

The controller itself does not run here: its globs are read as its `pkg/apis/glob` reads them, and a signature of ours
is verified by the key that stands in the policy.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fakes.engines.engine_image import new_signing_key
from fakes.fleet import fleet_spec, release

from engine_images.oci.model import MANIFEST, Descriptor
from engine_images.oci.reference import ImageReference
from engine_images.oci.signatures import SIGNATURE, signed_payload, with_signature
from engine_images.signature import verify
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.objects.admission_policies import AdmissionScope
from rollouts.manifests.render import render
from rollouts.manifests.schema import problems_in
from tidegate.core.errors import UsageError
from tidegate.core.model import Json

REPOSITORY = "registry.example.com/support-llm"
DIGEST = f"sha256:{'7' * 64}"


BUILD, NEXT = new_signing_key(), new_signing_key()
KEYS = (BUILD.public_pem + NEXT.public_pem).decode()


def objects(
    *parts: RenderPart, keys: str = KEYS, repositories: tuple[str, ...] = (REPOSITORY,), **changes: Any
) -> tuple[Json, ...]:
    asked = {"signatures": "sigstore", **changes}
    admitted = AdmissionScope(repositories=repositories)
    return render(fleet_spec(**asked), release(public_keys=keys), admitted=admitted, parts=parts or tuple(RenderPart))


def policy(**changes: Any) -> Json:
    (found,) = (each for each in objects(RenderPart.ADMISSION, **changes) if each["kind"] == "ClusterImagePolicy")
    return found


def held(image: str, *repositories: str) -> bool:
    """Whether the controller finds the policy for an image, which it names in full."""
    globs = [each["glob"] for each in policy(repositories=repositories)["spec"]["images"]]
    patterns = [re.escape(glob).replace(r"\*\*", ".*").replace(r"\*", "[^/]*") for glob in globs]
    return any(re.fullmatch(pattern, image) for pattern in patterns)


def test_any_of_the_keys_suffices_for_images_of_the_repositories() -> None:
    spec = policy()["spec"]
    assert spec["mode"] == "enforce"
    assert [each["key"]["data"] for each in spec["authorities"]] == [
        BUILD.public_pem.decode(),
        NEXT.public_pem.decode(),
    ]
    # Not left to a default: there is no entry in a transparency log to be found.
    assert [each["ctlog"] for each in spec["authorities"]] == [{}, {}]


def test_a_signature_that_a_build_hangs_on_an_image_is_one_of_the_policys_keys() -> None:
    image = Descriptor.of(b"image", MANIFEST)
    payload = signed_payload(image, ImageReference.parse(f"{REPOSITORY}:7"))
    (layer,) = json.loads(with_signature({}, payload, BUILD.sign(payload)).manifest)["layers"]
    key = policy()["spec"]["authorities"][0]["key"]["data"]
    verify(key.encode(), payload, layer["annotations"][SIGNATURE].encode())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"signatureFormats": "legacy"}, "spec.signatureFormats"),
        ({"images": []}, "spec.images"),
        ({"images": [{"glob": f"{REPOSITORY}@*"}]}, "spec.images[0].glob"),
        ({"authorities": [{"key": {"pem": "key"}}]}, "spec.authorities[0].key.pem"),
        ({"mode": "warning"}, "spec.mode"),
    ],
)
def test_what_the_controller_would_not_understand_is_no_valid_policy(where: Json, said: str) -> None:
    wanted = policy()
    assert [each.path for each in problems_in({**wanted, "spec": {**wanted["spec"], **where}})] == [said]


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        (f"{REPOSITORY}@{DIGEST}", REPOSITORY),
        (f"{REPOSITORY}@{DIGEST}", "registry.example.com/*"),
        (f"registry.example.com:5000/team/a/b@{DIGEST}", "registry.example.com:5000/team/*"),
        (f"index.docker.io/team/support-llm@{DIGEST}", "docker.io/team/support-llm"),
    ],
)
def test_it_is_about_whatever_engines_may_come_from(image: str, repository: str) -> None:
    assert held(image, "registry.example.com/other", repository)


@pytest.mark.parametrize(
    "image",
    [
        f"registry.example.com/team/support-llm@{DIGEST}",
        f"{REPOSITORY}/tools@{DIGEST}",
        f"elsewhere.example.com/{REPOSITORY}@{DIGEST}",
        f"registryxexample.com/support-llm@{DIGEST}",
    ],
)
def test_images_of_others_are_not_its_business(image: str) -> None:
    assert not held(image, REPOSITORY)


def test_deliveries_of_two_namespaces_have_policies_of_their_own() -> None:
    names = [policy(namespace=namespace)["metadata"] for namespace in ("serving", "staging")]
    assert [each["name"] for each in names] == ["serving.support-llm-signatures", "staging.support-llm-signatures"]
    assert not any("namespace" in each for each in names)


def test_a_cluster_gets_none_unless_it_is_asked_for() -> None:
    kinds = {each["kind"] for each in objects(signatures=None)}
    assert "ValidatingAdmissionPolicy" in kinds
    assert "ClusterImagePolicy" not in kinds


@pytest.mark.parametrize("part", [RenderPart.SETUP, RenderPart.SERVING])
def test_it_is_an_administrators_to_apply_with_the_other_policies(part: RenderPart) -> None:
    # What a delivery applies does not hang on keys and repositories either.
    assert "ClusterImagePolicy" not in {each["kind"] for each in objects(part, keys="", repositories=())}


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"keys": ""}, "has no keys"),
        ({"repositories": ()}, "has no images"),
        ({"keys": "", "repositories": ()}, "has no keys and images"),
    ],
)
def test_a_policy_that_would_verify_nothing_or_everybodys_is_refused(lacking: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        objects(RenderPart.ADMISSION, **lacking)
