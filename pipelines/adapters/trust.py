"""Reads the trust file, and builds what checks the images of engines by it."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.authority.engine_images import TrustedImages, keys_in
from pipelines.spec.trust import Trusted, trust_at
from tidegate.core.process import TRUST_VARIABLE


def named_trust(spec_folder: Path | None = None) -> Trusted:
    """The trust file that `--trust` or TIDEGATE_TRUST names, as `trust_at` reads it."""
    named = os.environ.get(TRUST_VARIABLE)
    return trust_at(Path(named) if named else None, spec_folder)


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
