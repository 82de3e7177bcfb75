"""What others wrote, so that it cannot break the report that it stands in."""

from __future__ import annotations

import re


def xml_text(text: str) -> str:
    """Without characters that XML cannot hold; a reason may quote what a source wrote into `missing`."""
    return re.sub(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
