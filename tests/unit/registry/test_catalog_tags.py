"""Tags of versions in Unity Catalog: what it takes, and what comes back."""

import hashlib

import pytest

from registry.catalog_tags import MOST_CHARACTERS, MOST_TAGS, catalog_tags, read_catalog_tags
from registry.conventions import DIGEST, ENGINE_IMAGE, FILE_PREFIX, REASON
from registry.errors import UnfitModel
from registry.model import StoredModel, StoredVersion
from registry.version_tags import digest_tags, version_of

pytestmark = pytest.mark.long

MODEL = StoredModel(name="main.llm.support", aliases={"champion": "3"})


def digests(count: int) -> dict[str, str]:
    paths = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    return {path: hashlib.sha256(path.encode()).hexdigest() for path in paths}


def version(tags: dict[str, str]) -> StoredVersion:
    return StoredVersion(name=MODEL.name, version="3", tags=tags)


@pytest.mark.parametrize("files", [1, 30, 163, 500])
def test_digests_of_a_large_model_fit_and_come_back(files: int) -> None:
    tags = digest_tags(digests(files), 1000) | {ENGINE_IMAGE: "registry.example/a@sha256:1", "owner": "ann"}
    kept = catalog_tags(tags)
    assert read_catalog_tags(kept) == tags
    assert version_of(version(read_catalog_tags(kept)), MODEL).files == digests(files)
    assert len(kept) <= MOST_TAGS
    assert all(len(value) <= MOST_CHARACTERS and not set(".,-=/:") & set(key) for key, value in kept.items())


def test_a_version_of_163_shards_leaves_room_for_what_others_note() -> None:
    assert len(catalog_tags(digest_tags(digests(163), 1000))) <= 12


def test_more_files_than_the_tags_can_name_are_refused() -> None:
    with pytest.raises(UnfitModel, match=r"digests of 2000 files.* Unity Catalog has 50 .*larger shards"):
        catalog_tags(digest_tags(digests(2000), 1000))


def test_the_digest_over_all_files_is_written_last() -> None:
    assert list(catalog_tags({DIGEST: "1", **digest_tags(digests(3), 10)}))[-1] == "tidegate__digest"


def test_long_text_comes_back() -> None:
    # Each is another character, so that it does not fit in one part after all.
    reason = "".join(chr(0x4E00 + number) for number in range(3000))
    kept = catalog_tags({REASON: reason})
    assert len(kept) > 1
    assert read_catalog_tags(kept) == {REASON: reason}


def test_what_was_cut_off_in_the_middle_counts_as_not_written() -> None:
    kept = catalog_tags(digest_tags(digests(100), 1000))
    del kept["tidegate__files__2of" + max(key for key in kept if "__files__" in key).rpartition("of")[2]]
    assert not [key for key in read_catalog_tags(kept) if key.startswith(FILE_PREFIX)]
    with pytest.raises(UnfitModel, match="does not follow from those of the files"):
        version_of(version(read_catalog_tags(kept)), MODEL)


@pytest.mark.parametrize("document", ["[1]", "nothing", '{"a": 1}'])
def test_a_document_of_somebody_else_is_no_digest(document: str) -> None:
    kept = catalog_tags({"tidegate.files": document + " " * 2000})
    assert read_catalog_tags(kept) == {}


def test_tags_of_others_stay_as_they_are() -> None:
    others = {"owner": "ann", "cost__1of2": "a", "under_score": "b"}
    assert read_catalog_tags(others) == catalog_tags(others) == others
