import pytest


@pytest.fixture(autouse=True)
def notes_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tidegate")
