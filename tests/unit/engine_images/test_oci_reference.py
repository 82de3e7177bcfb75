"""Names of images are read as docker reads them, and a wrong one is told with the part that is wrong."""

import pytest

from engine_images.errors import BadReference
from engine_images.oci.reference import ImageReference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("registry.example/team/engine:7", "registry.example", "team/engine", "7", ""),
        ("registry.example:5000/engine", "registry.example:5000", "engine", "", ""),
        ("localhost/engine:7", "localhost", "engine", "7", ""),
        ("[::1]:5000/engine:7", "[::1]:5000", "engine", "7", ""),
        (f"registry.example/engine:7@{DIGEST}", "registry.example", "engine", "7", DIGEST),
        (f"registry.example/engine@{DIGEST}", "registry.example", "engine", "", DIGEST),
        ("vllm/vllm-openai:v0.32.0", "docker.io", "vllm/vllm-openai", "v0.32.0", ""),
        ("debian", "docker.io", "debian", "", ""),
        ("docker://registry.example/a/b:c", "registry.example", "a/b", "c", ""),
    ],
)
def test_every_part_is_found(text: str, registry: str, repository: str, tag: str, digest: str) -> None:
    assert ImageReference.parse(text) == ImageReference(
        registry=registry, repository=repository, tag=tag, digest=digest
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("registry.example/Team/engine:7", "repository `Team/engine`"),
        ("registry.example/engine:a b", "tag `a b`"),
        ("registry.example/engine@sha256:abc", "digest `sha256:abc`"),
        ("registry.example/", "repository ``"),
        ("regis try.example/engine", "registry `regis try.example`"),
        ("user:pass@registry.example/engine", "digest"),
        ("../layout", "registry `..`"),
        ("", "repository ``"),
    ],
)
def test_what_is_wrong_is_said(text: str, part: str) -> None:
    with pytest.raises(BadReference, match=part):
        ImageReference.parse(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("127.0.0.1:5000/e", True),
        ("127.8.8.8/e", True),
        ("localhost:1/e", True),
        ("[::1]:5000/e", True),
        ("registry.example/e", False),
        ("127.0.0.1.example:80/e", False),
        ("localhost.example/e", False),
        ("10.0.0.1:5000/e", False),
    ],
)
def test_only_this_machine_is_the_loopback(text: str, local: bool) -> None:
    assert ImageReference.parse(text).on_loopback is local


def test_docker_hub_answers_elsewhere_than_it_is_named() -> None:
    assert ImageReference.parse("debian:12").address == "registry-1.docker.io"
