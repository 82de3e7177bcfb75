"""Credentials come from where docker keeps them, and are seen nowhere else."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from engine_images.adapters.oci_registry import docker_config, find_credentials
from engine_images.errors import RegistryRefused

SECRET = "horse-battery-staple"
AUTH = base64.b64encode(f"pusher:{SECRET}".encode()).decode()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def wrote(config: Path, settings: Any) -> Path:
    config.write_text(json.dumps(settings))
    return config


def helper(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A real program in docker's protocol, first on PATH."""
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("registry", "key"),
    [
        ("registry.example", "registry.example"),
        ("registry.example", "https://registry.example"),
        ("docker.io", "https://index.docker.io/v1/"),
    ],
)
def test_user_and_password_of_docker_login(config: Path, registry: str, key: str) -> None:
    found = find_credentials(registry, wrote(config, {"auths": {key: {"auth": AUTH}}}))

    assert found is not None
    assert (found.username, found.password.get_secret_value()) == ("pusher", SECRET)
    assert SECRET not in f"{found} {found!r} {found.model_dump_json()}"


@pytest.mark.parametrize("settings", [{}, {"auths": {"other.example": {"auth": AUTH}}}, {"auths": {"r.example": {}}}])
def test_an_unknown_registry_is_met_without_credentials(config: Path, settings: dict[str, Any]) -> None:
    assert find_credentials("r.example", wrote(config, settings)) is None


def test_no_file_is_no_credentials(config: Path) -> None:
    assert find_credentials("r.example", config) is None


@pytest.mark.parametrize("which", ["credHelpers", "credsStore"])
def test_a_helper_is_asked_before_the_file(config: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    script = f"""read registry; echo '{{"Username": "'$registry'", "Secret": "{SECRET}"}}'"""
    helper(config.parent, monkeypatch, script)
    settings = {"credHelpers": {"r.example": "test"}} if which == "credHelpers" else {"credsStore": "test"}

    found = find_credentials("r.example", wrote(config, settings | {"auths": {"r.example": {}}}))

    assert found is not None
    assert (found.username, found.password.get_secret_value()) == ("r.example", SECRET)


def test_a_helper_may_know_nothing(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(config.parent, monkeypatch, "echo credentials not found in native keychain; exit 1")

    assert find_credentials("r.example", wrote(config, {"credsStore": "test"})) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"echo {SECRET}; exit 3", "exit code 3"),
        (f"echo {SECRET}", "something else than credentials"),
    ],
)
def test_a_helper_that_fails_is_told_without_what_it_said(
    config: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    helper(config.parent, monkeypatch, script)

    with pytest.raises(RegistryRefused, match=said) as caught:
        find_credentials("r.example", wrote(config, {"credsStore": "test"}))

    assert SECRET not in str(caught.value)


def test_a_helper_that_is_not_there_is_named(config: Path) -> None:
    with pytest.raises(RegistryRefused, match="docker-credential-nowhere"):
        find_credentials("r.example", wrote(config, {"credsStore": "nowhere"}))


@pytest.mark.parametrize(
    "entry", [{"auth": "no base64!"}, {"auth": base64.b64encode(b"nocolon").decode()}, {"auth": 1}]
)
def test_an_entry_that_cannot_be_used_is_told(config: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(RegistryRefused, match=r"docker login r\.example"):
        find_credentials("r.example", wrote(config, {"auths": {"r.example": entry}}))


def test_a_broken_file_is_told_without_its_content(config: Path) -> None:
    config.write_text(f'{{"auths": {SECRET}')

    with pytest.raises(RegistryRefused, match="not what `docker login` writes") as caught:
        find_credentials("r.example", config)

    assert SECRET not in str(caught.value)


def test_docker_s_variable_moves_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    assert docker_config() == tmp_path / "config.json"
