"""Reads the trust file, and builds what checks the images of engines by it."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.authority.engine_images import TrustedImages, keys_in
from pipelines.spec.trust import Trust, Trusted
from tidegate.core.errors import UsageError
from tidegate.core.process import TRUST_VARIABLE
from tidegate.core.spec import load_spec

TRUST_FILE = "trust.yaml"


def named_trust(spec_folder: Path | None = None) -> Trusted:
    """The trust file that `--trust` or TIDEGATE_TRUST names; an empty one where none is named.

    `spec_folder` is where the caller's spec lies; None where it came from MLflow, or there is none.

    Raises:
        UsageError: none is named, and one came with the spec: who writes specs would say what specs may.
        SpecError: the file is named and missing, or is no trust file.
    """
    if named := os.environ.get(TRUST_VARIABLE):
        return Trusted(load_spec(Path(named), Trust), Path(named).parent)
    if spec_folder and (unnamed := spec_folder / TRUST_FILE).exists():
        raise UsageError(
            f"{unnamed}: a trust file next to a spec does not count until the operator names it",
            hint=f"name it, or another, by `--trust FILE` or TIDEGATE_TRUST; or remove {unnamed}",
        )
    return Trusted(Trust(), Path())


def trusted_images(trusted: Trusted) -> TrustedImages | None:
    """What images of engines have to be; None where nothing is asked of them.

    Raises:
        BadKey: a key cannot be read.
    """
    asked = trusted.trust.engines
    if not asked.keys and not asked.images:
        return None
    # Not above: it loads what speaks to registries.
    from engine_images.adapters.oci_read import opened_reference

    keys = keys_in(asked, trusted.folder)
    return TrustedImages(open=opened_reference, repositories=asked.images, keys=keys)
