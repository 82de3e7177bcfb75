"""Where secrets are: what a spec may say, where they are read, and that no message has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.access import (
    CredentialMissing,
    CredentialSource,
    PrometheusAccessFile,
    PrometheusEndpoint,
    SecretStore,
    conflicts_for_rollouts,
    endpoint_at,
    scrubbed,
)
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError, parse_spec

SECRET = "glc_eyJvIjoiMTIzIn0-S3cret"


def access(text: str) -> PrometheusAccessFile:
    return parse_spec(text, PrometheusAccessFile, file="p.yaml")


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        access(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"auth: {{bearer: {SECRET}}}",
        f"auth: {{bearer: {{env: {SECRET}}}}}",
        f"auth: {{bearer: {{file: {SECRET}}}}}",
        f"auth: {{bearer: {{token: {SECRET}}}}}",
        f"auth: {{bearer: {{secret: {SECRET}}}}}",
        f"auth: {{bearer: {{secret: {{name: {SECRET}, key: token}}}}}}",
        f"auth: {{basic: {{username: me, password: {SECRET}}}}}",
        f"auth: {{sigv4: {{region: eu-west-1, secret_key: {SECRET}, access_key: {{env: A}}}}}}",
        f"auth: {{certificate: {{certificate: {{file: /c}}, key: {SECRET}}}}}",
        f"auth: {SECRET}",
        f"ca: {SECRET}",
    ],
)
def test_a_secret_in_place_of_its_place_is_refused_and_not_quoted(text: str) -> None:
    told = problem(text)
    assert told.startswith("p.yaml:1: ") and SECRET not in told


def test_what_is_right_is_said() -> None:
    assert problem("auth: {bearer: {}}") == (
        "p.yaml:1: auth.bearer: found nothing; expected {env: NAME}, {file: /PATH} or {secret: {name: NAME, key: KEY}};"
        " the secret itself stays outside"
    )
    assert "found bearer and sigv4; expected exactly one of" in problem(
        "auth: {bearer: {env: T}, sigv4: {region: eu-west-1}}"
    )
    assert "found `env` and `file`; expected one of them" in problem("auth: {bearer: {env: T, file: /t}}")
    assert "begins with `/` and has no `..`" in problem("auth: {bearer: {file: /run/../etc/shadow}}")


def test_a_name_may_be_a_number() -> None:
    said = access("auth: {basic: {username: 123456, password: {env: P}}}")
    assert said.auth is not None and said.auth.basic is not None and said.auth.basic.username == "123456"


def test_an_address_of_the_command_line_has_no_password() -> None:
    with pytest.raises(UsageError) as caught:
        endpoint_at(f"https://me:{SECRET}@p.example", None)
    assert SECRET not in str(caught.value) and "--prometheus" in str(caught.value)


TOKEN = CredentialSource.model_validate({"file": "/nowhere/token", "secret": {"name": "prometheus", "key": "token"}})


def test_a_mounted_secret_comes_before_a_file(tmp_path: Path) -> None:
    (tmp_path / "prometheus").mkdir()
    (tmp_path / "prometheus/token").write_text("of-the-secret\n")
    store = SecretStore({"TIDEGATE_SECRETS": str(tmp_path)})
    assert store.text(TOKEN) == "of-the-secret"
    assert store.where(TOKEN) == f"the file {tmp_path}/prometheus/token"
    assert SecretStore({}).where(TOKEN) == "the file /nowhere/token"


def test_a_file_that_is_rotated_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    source, store = CredentialSource(file=file), SecretStore({})
    for text in ("one", "two"):
        file.write_text(text)
        assert store.text(source) == text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            {"env": "TIDEGATE_SPEC_TOKEN"},
            "the environment variable TIDEGATE_SPEC_TOKEN, which holds a credential, is not set",
        ),
        ({"file": "/nowhere/token"}, "the credential in the file /nowhere/token cannot be read: no such file"),
        ({"file": "/dev/zero"}, "the file /dev/zero, which holds a credential, is empty or no file"),
        ({"secret": {"name": "p", "key": "k"}}, "the credential is in the Secret p, key k, which is not mounted here"),
    ],
)
def test_a_secret_that_is_not_there_is_told_by_its_place(source: dict[str, object], told: str) -> None:
    with pytest.raises(CredentialMissing) as caught:
        SecretStore({}).text(CredentialSource.model_validate(source))
    assert caught.value.message.startswith(told)


def test_the_words_of_others_lose_every_secret() -> None:
    assert scrubbed(f"you sent Bearer {SECRET}!", [SECRET, "", "a"]) == "you sent Bearer ***!"


def endpoint(auth: dict[str, object]) -> PrometheusEndpoint:
    return PrometheusEndpoint.model_validate({"url": "https://p.example", "auth": auth})


IN_SECRET = {"secret": {"name": "p", "key": "k"}}


@pytest.mark.parametrize(
    ("auth", "rollouts"),
    [
        ({"bearer": {"env": "T"}}, ["bearer"]),
        ({"bearer": IN_SECRET}, []),
        ({"basic": {"username": "me", "password": IN_SECRET}}, ["basic"]),
        ({"basic": {"username": "me", "password": IN_SECRET, "header": IN_SECRET["secret"]}}, []),
        ({"certificate": {"certificate": IN_SECRET, "key": IN_SECRET}}, ["certificate"]),
        ({"sigv4": {"region": "eu-west-1"}}, []),
    ],
)
def test_who_asks_from_inside_has_to_be_able_to(auth: dict[str, object], rollouts: list[str]) -> None:
    assert [odd.where[-1] for odd in conflicts_for_rollouts(endpoint(auth))] == rollouts
