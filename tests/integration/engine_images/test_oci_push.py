"""Pushing to a real registry, read back with other people's tools; and everything that can break on the way."""

import filecmp
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, CACHE, ENTRYPOINT, MODEL, contents, small_base, small_engine
from fakes.services.oci_registry import PASSWORD, USER, RegistryServer, self_signed, token_server
from pydantic import SecretStr

from engine_images.adapters.oci_build import base_at
from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_push import Progress, PushResult, Transfer, TransferKind, push_image
from engine_images.adapters.oci_registry import Credentials, RegistryAccess, Repository
from engine_images.errors import BadReference, BrokenImage, RegistryRefused, RegistryUnavailable
from engine_images.oci.compose import manifest_bytes
from engine_images.oci.model import Base, Descriptor
from engine_images.oci.reference import ImageReference
from rollouts.adapters.sockets import free_port

pytestmark = pytest.mark.usefixtures("tools")


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


OPEN = RegistryAccess()


def no_wait(_: float) -> None:
    pass


def nothing(_: Transfer) -> None:
    pass


def push(
    layout: OciLayout,
    server: RegistryServer,
    *,
    access: RegistryAccess = OPEN,
    progress: Progress = nothing,
    sleep: Callable[[float], None] = no_wait,
    repository: str = "team/support-llm:7",
) -> PushResult:
    target = ImageReference.parse(f"{server.host}/{repository}")
    return push_image(layout, layout.find("support-llm:7"), target, lambda _: access, progress, sleep)


def how(pushed: PushResult) -> dict[str, TransferKind]:
    return {transfer.title: transfer.how for transfer in pushed.transfers}


def test_another_tool_pulls_the_same_bytes_and_lays_out_the_same_files(
    layout: OciLayout, registry: RegistryServer, tmp_path: Path
) -> None:
    small_base(tmp_path / "base")
    image = small_engine(layout.root, base=base_at(str(tmp_path / "base"), AMD64))

    pushed = push(layout, registry)

    assert pushed.reference == f"{registry.host}/team/support-llm:7@{image.digest}"
    pulled = OciLayout(registry.pull("team/support-llm:7", tmp_path / "pulled"))
    assert pulled.find() == image
    for name in (path.name for path in (pulled.root / "blobs/sha256").iterdir()):
        assert filecmp.cmp(pulled.root / "blobs/sha256" / name, layout.root / "blobs/sha256" / name, shallow=False)
    command = ["umoci", "raw", "unpack", "--rootless", "--image", f"{pulled.root}:pulled", str(tmp_path / "rootfs")]
    subprocess.run(command, check=True, capture_output=True)
    engine = tmp_path / "rootfs/engine"
    laid_out = {path.relative_to(engine).as_posix(): path.read_bytes() for path in engine.rglob("*") if path.is_file()}
    manifest = laid_out.pop("manifest.json")
    assert laid_out == {
        **{f"entrypoint/{name}": content for name, content in ENTRYPOINT.items()},
        **{f"cache/{name}": content for name, content in CACHE.items()},
        **{f"model/{name}": content for name, content in MODEL.items()},
    }
    assert manifest == manifest_bytes(contents().manifest)


def test_what_is_there_is_not_sent_again(layout: OciLayout, registry: RegistryServer) -> None:
    small_engine(layout.root)
    first = push(layout, registry)
    uploads = registry.requests("POST", "/blobs/uploads/")

    second = push(layout, registry)

    assert set(how(first).values()) == {TransferKind.SENT}
    assert set(how(second).values()) == {TransferKind.THERE}
    assert registry.requests("POST", "/blobs/uploads/") == uploads == 4


def test_a_base_in_the_same_registry_is_mounted(layout: OciLayout, registry: RegistryServer, tmp_path: Path) -> None:
    base = base_of(registry, tmp_path)
    small_engine(layout.root, base=base)
    sent, asked = registry.requests("PUT", "/blobs/uploads/"), registry.requests("POST", "from=vllm")

    pushed = push(layout, registry)

    assert [transfer.how for transfer in pushed.transfers if transfer.title == "base layer"] == [
        TransferKind.MOUNTED
    ] * 2
    assert registry.requests("PUT", "/blobs/uploads/") - sent == 4
    assert registry.requests("POST", "from=vllm") - asked == 2


@pytest.mark.long
def test_a_base_in_another_registry_is_copied_as_a_stream(
    layout: OciLayout, registry: RegistryServer, tmp_path: Path
) -> None:
    with RegistryServer(tmp_path / "other") as other:
        image = small_engine(layout.root, base=base_of(other, tmp_path))

        pushed = push(layout, registry)

    assert [transfer.how for transfer in pushed.transfers if transfer.title == "base layer"] == [
        TransferKind.COPIED
    ] * 2
    assert OciLayout(registry.pull("team/support-llm:7", tmp_path / "pulled")).find() == image


def test_a_blob_is_read_no_further_than_its_descriptor_says(layout: OciLayout, registry: RegistryServer) -> None:
    small_engine(layout.root)
    pushed = push(layout, registry)
    largest = max(pushed.transfers, key=lambda transfer: transfer.size)
    promised = Descriptor(media_type="", digest=largest.digest, size=largest.size - 1)

    with (
        Repository(ImageReference.parse(pushed.reference), OPEN) as there,
        pytest.raises(BrokenImage, match="more than"),
    ):
        b"".join(there.blob(promised))


def test_a_base_layer_that_was_changed_in_its_registry_does_not_arrive(
    layout: OciLayout, registry: RegistryServer, tmp_path: Path
) -> None:
    with RegistryServer(tmp_path / "other") as other:
        base = base_of(other, tmp_path)
        small_engine(layout.root, base=base)
        hexadecimal = base.layers[1].digest.removeprefix("sha256:")
        (blob,) = other.storage.rglob(f"{hexadecimal}/data")
        blob.write_bytes(blob.read_bytes().replace(b"b", b"c"))

        with pytest.raises(BrokenImage, match="it was changed"):
            push(layout, registry)

    assert registry.tags("team/support-llm") == []
    assert not list(registry.storage.rglob(f"{hexadecimal}/data"))


def base_of(server: RegistryServer, tmp_path: Path) -> Base:
    image = small_base(tmp_path / "base")
    server.push(tmp_path / "base", "base", "vllm/vllm-openai:0.32")
    return base_at(f"{server.host}/vllm/vllm-openai@{image.digest}", AMD64)


def test_a_base_is_the_same_from_a_registry_and_from_a_layout(registry: RegistryServer, tmp_path: Path) -> None:
    remote = base_of(registry, tmp_path)
    local = base_at(f"{tmp_path}/base:base", AMD64)

    assert remote.model_copy(update={"reference": ""}) == local.model_copy(update={"layout": None})


def test_a_base_named_by_tag_is_refused_with_its_digest(registry: RegistryServer, tmp_path: Path) -> None:
    digest = base_of(registry, tmp_path).digest

    with pytest.raises(BadReference, match=rf"now it is .*vllm-openai:0\.32@{digest}"):
        base_at(f"{registry.host}/vllm/vllm-openai:0.32", AMD64)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """So large that its upload tells how far it is."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(150_000_000)
    return path


def killing(server: RegistryServer) -> Progress:
    """Takes the registry away in the middle of the large layer, once."""
    killed = False

    def progress(transfer: Transfer) -> None:
        nonlocal killed
        if transfer.title == "weights" and transfer.done < transfer.size and not killed:
            killed = True
            server.stop(signal.SIGKILL)

    return progress


def test_a_registry_that_goes_away_in_mid_push_gets_the_rest_from_the_next_push(
    layout: OciLayout, registry: RegistryServer, large: Path, tmp_path: Path
) -> None:
    image = small_engine(layout.root, model={"model.safetensors": large})
    pauses: list[float] = []

    with pytest.raises(RegistryUnavailable, match=r"^127\.0\.0\.1:\d+ does not answer: no connection"):
        push(layout, registry, progress=killing(registry), sleep=pauses.append)

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    registry.start()
    assert registry.tags("team/support-llm") == []
    second = push(layout, registry)
    assert how(second) == {
        "engine": TransferKind.THERE,
        "compile cache": TransferKind.THERE,
        "weights": TransferKind.SENT,
        "configuration": TransferKind.SENT,
    }
    assert OciLayout(registry.pull("team/support-llm:7", tmp_path / "pulled")).find() == image


def test_no_password_goes_over_plain_http_to_another_machine(layout: OciLayout, tmp_path: Path) -> None:
    """This machine by its name outside counts as another one."""
    small_engine(layout.root)
    outside = own_address()
    access = RegistryAccess(Credentials(username=USER, password=SecretStr(PASSWORD)), insecure=True)

    with (
        RegistryServer(tmp_path / "outside", locked=True, address=outside) as server,
        pytest.raises(RegistryRefused, match="not sent over plain http"),
    ):
        push(layout, server, access=access)


def test_a_registry_that_gives_tokens_is_asked_for_no_more_than_a_push_needs(
    layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all the large public ones do: the password goes to another server, for a token of each repository."""
    address = own_address()
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    self_signed(address, certificate, key)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "all.pem"))
    right, wrong = (
        RegistryAccess(Credentials(username=USER, password=SecretStr(each))) for each in (PASSWORD, "correct-horse")
    )

    with (
        token_server(address, free_port(), certificate, key) as tokens,
        RegistryServer(
            tmp_path / "registry",
            address=address,
            encrypted=True,
            tokens=tokens.settings | {"rootcertbundle": str(certificate)},
        ) as server,
    ):
        (tmp_path / "all.pem").write_text(certificate.read_text() + server.certificate.read_text())
        base = small_base(tmp_path / "base")
        target = ImageReference.parse(f"{server.host}/vllm/base:1")
        push_image(OciLayout(tmp_path / "base"), base, target, lambda _: right)
        small_engine(layout.root, base=base_at(str(target.at(base.digest)), AMD64, lambda _: right))
        tokens.asked.clear()

        with pytest.raises(RegistryRefused, match="user `pusher` or the password is not accepted"):
            push(layout, server, access=wrong)
        pushed = push(layout, server, access=right)

    assert [transfer.how for transfer in pushed.transfers if transfer.title == "base layer"] == [
        TransferKind.MOUNTED
    ] * 2
    asked = {tuple(scope.split(":")[1:]) for scopes in tokens.asked for scope in scopes}
    assert {(name, frozenset(actions.split(","))) for name, actions in asked} == {
        ("team/support-llm", frozenset({"pull"})),
        ("team/support-llm", frozenset({"pull", "push"})),
        ("vllm/base", frozenset({"pull"})),
    }


def own_address() -> str:
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    found = [address for address in said if "." in address and not address.startswith("127.")]
    return found[0] if found else pytest.skip("this machine has no address but the loopback's")


def test_a_layer_changed_on_disk_does_not_arrive(layout: OciLayout, registry: RegistryServer) -> None:
    manifest = layout.read(small_engine(layout.root))
    weights = Descriptor.read(manifest["layers"][2])
    path = layout.path(weights)
    path.write_bytes(path.read_bytes().replace(b"w", b"v"))

    with pytest.raises(BrokenImage, match=f"{weights.digest} is not what its name says"):
        push(layout, registry)

    assert registry.tags("team/support-llm") == []
    assert not list(registry.storage.rglob(f"{weights.digest.removeprefix('sha256:')}/data"))
