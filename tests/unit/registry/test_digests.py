import hashlib
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from registry.conventions import SUMS, in_filter
from registry.errors import UnfitModel
from registry.files import compare, digest_files, read_sums, sums_of, whole_digest
from registry.model import ModelVersion
from tidegate.core.errors import UsageError


def test_every_file_has_its_sha256_under_its_relative_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.json").write_bytes(b"a")
    (tmp_path / "b.safetensors").write_bytes(b"b")

    assert digest_files(tmp_path) == {
        "b.safetensors": hashlib.sha256(b"b").hexdigest(),
        "sub/a.json": hashlib.sha256(b"a").hexdigest(),
    }


def test_a_link_counts_as_the_file_it_leads_to(tmp_path: Path) -> None:
    cache = tmp_path / "models--acme--support-llm"
    folder = cache / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (cache / "blob").write_bytes(b"a")
    (folder / "config.json").symlink_to("../../blob")
    (folder / "again.json").symlink_to("config.json")

    assert digest_files(folder) == dict.fromkeys(("again.json", "config.json"), hashlib.sha256(b"a").hexdigest())


@pytest.mark.parametrize("target", ["/proc/self/environ", "../key", "../m2/key"])
@pytest.mark.parametrize("folder", ["m", "snapshots/m", "models--a--b/snapshots/m"])
def test_a_link_out_of_the_folder_is_refused(target: str, folder: str, tmp_path: Path) -> None:
    model = tmp_path / "a" / "b" / folder
    model.mkdir(parents=True)
    for key in (tmp_path / "key", tmp_path / "m2" / "key"):
        key.parent.mkdir(exist_ok=True)
        key.write_text("secret")
    (model / "notes.txt").symlink_to(target if target.startswith("/") else tmp_path / target.removeprefix("../"))
    with pytest.raises(UnfitModel, match=r"notes\.txt: a link out of "):
        digest_files(model)


def test_sha256sum_reads_the_sums_and_their_digest_is_the_whole_one(tmp_path: Path) -> None:
    for name in ("b", "a b", "Z"):
        (tmp_path / name).write_text(name)
    files = digest_files(tmp_path)
    (tmp_path / SUMS).write_text(sums_of(files))
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "Z: OK\na b: OK\nb: OK\n"
    # They are no file of the model.
    assert digest_files(tmp_path) == read_sums(sums_of(files)) == files
    assert whole_digest(files) == hashlib.sha256((tmp_path / SUMS).read_bytes()).hexdigest()


@pytest.mark.parametrize("text", ["no digest\n", f"{'1' * 64} a\n", f"{'1' * 64}  a\n\n"])
def test_a_line_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a line is no SHA-256"):
        read_sums(text)


def test_the_whole_digest_knows_names_and_contents() -> None:
    digests = {whole_digest(files) for files in ({"a": "1"}, {"b": "1"}, {"a": "2"}, {"a": "1", "b": "1"}, {})}

    assert len(digests) == 5


def test_no_difference_is_falsy_and_says_nothing() -> None:
    assert compare({"a": "1"}, {"a": "1"}) == ""


def test_a_difference_names_every_file() -> None:
    found = compare({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"})

    assert found == "changed: b; missing: c; extra: d"


@pytest.mark.parametrize("path", ["/etc/passwd", "../prod.conf", "a/../../b", "./a", "a//b", "", "a\\b"])
def test_no_file_of_a_version_has_a_path_that_leads_out_of_its_folder(path: str) -> None:
    with pytest.raises(ValidationError, match="a path of a file below the model's folder"):
        ModelVersion(name="m", version="1", digest="d" * 64, files={path: "d" * 64}, size_bytes=0)


@pytest.mark.parametrize("digest", ["/victim", "../victim", "D" * 64, "d" * 63, "d" * 65, "d" * 64 + "\n", " "])
def test_a_digest_is_a_digest_and_never_a_path(digest: str) -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        ModelVersion(name="m", version="1", digest=digest, files={}, size_bytes=0)


@pytest.mark.parametrize("name", ["m' OR name LIKE '%", 'm"', "m`", "m\\"])
def test_a_name_never_says_more_than_a_name_in_a_filter(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a model"):
        in_filter(name)


def test_a_name_in_a_filter_is_quoted() -> None:
    assert in_filter("support llm") == "'support llm'"
