"""Real SSH keys of people, and the file that says whose they are."""

from __future__ import annotations

import subprocess
from pathlib import Path


def a_key_of(name: str, folder: Path) -> Path:
    """A private key without a passphrase."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    return key


def allow(file: Path, principals: str, key: Path, options: str = "") -> None:
    """One more line of the file of allowed signers."""
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    line = " ".join(filter(None, (principals, options, public)))
    file.write_text((file.read_text() if file.exists() else "") + line + "\n")


def fingerprint(key: Path) -> str:
    """As ssh-keygen shows it."""
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True, check=True).stdout
    return said.split()[1]
