"""No message shows who asks."""

from __future__ import annotations

import pytest

from tidegate.core.errors import OutsideError, without_credentials
from tidegate.core.text import host_of, redacted


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("http://ci-bot:hunter2@127.0.0.1:9/", "http://127.0.0.1:9/"),
        (
            "postgresql+psycopg2://mlflow:p@ss@db.example:5432/mlflow?sslpassword=s",
            "postgresql+psycopg2://db.example:5432/mlflow",
        ),
        ("https://token@host/path#x", "https://host/path"),
        ("http://h/?token=er2secret", "http://h/"),
        ("sqlite:////work/a@b/mlflow.db", "sqlite:////work/a@b/mlflow.db"),
        # SQLAlchemy takes all of these in a password.
        *[(f"postgresql://ci:hunt{each}er2secret@h/mlflow", "postgresql://***") for each in "/#?"],
        *[(f"postgresql://ci:hunt{each}er2secret@h/mlflow", "postgresql://h/mlflow") for each in " '\"@"],
        ("postgresql://ci:12/er2secret@h/mlflow", "postgresql://***"),
        ("http://[::1", "http://***"),
        ("er2secret ://x", "***"),
    ],
)
def test_an_address_is_shown_without_name_password_and_query(uri: str, told: str) -> None:
    assert redacted(uri) == told


def test_addresses_within_words_lose_their_names_and_the_rest_stays() -> None:
    said = "no answer from 'http://a:b@one/x?y', nor from http://c:d@two; ask ann@example.org"
    assert without_credentials(said) == "no answer from 'http://one/x?y', nor from http://two; ask ann@example.org"
    for same in (
        "http://host:80/a@b)",
        "hf://org/name@rev",
        "docker://r:5000/x@sha256:ab",
        "http://[::1]:80",
        "s3://b",
    ):
        assert without_credentials(f"from {same}, or '{same}'.") == f"from {same}, or '{same}'."


@pytest.mark.parametrize(
    "secret",
    ["ci:hunt/er2secret@h", "ci:hunt#er2secret@h", "ci:a'er2secret@h", "h/?a=b&token=er2secret&x=y", "h#t=er2secret"],
)
def test_no_part_of_a_secret_stays_in_words(secret: str) -> None:
    told = without_credentials(f"no answer from 'http://{secret}', nor from http://two")
    assert told.startswith("no answer from 'http://") and told.endswith(", nor from http://two")
    assert "er2secret" not in told and "hunt" not in told


def test_a_host_is_told_with_its_port_and_without_a_name() -> None:
    assert host_of("https://ci:key@judge.example:8443/v1") == "judge.example:8443"
    assert host_of("http://[::1]:80/") == "[::1]:80"
    assert host_of("nowhere") == "nowhere"


def test_no_error_carries_a_password_no_matter_who_wrote_it() -> None:
    error = OutsideError("http://a:b@h is away", hint="look at http://a:b@h", detail="GET http://a:b@h/")
    assert "a:b" not in f"{error}{error.hint}{error.detail}{error.args}"
