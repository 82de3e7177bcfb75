"""Over which windows a burn is measured, and how fast a burn has to be to page somebody or to open a ticket."""

from slo.windows.catalogue import known_windows, windows_among, windows_for
from slo.windows.model import Speeds, Window, Windows

__all__ = ["Speeds", "Window", "Windows", "known_windows", "windows_among", "windows_for"]
