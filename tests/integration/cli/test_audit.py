"""What somebody writes into a delivery's run with MLflow's own client is found, by the next step and by the audit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from fakes.terminal import Tidegate

from registry.deliveries import MlflowDeliveries
from registry.model import Event
from registry.ports import embedded_uri

EVENT = "mlflow.tidegate.event."


@pytest.fixture
def opened(tidegate: Tidegate, registered: Path) -> str:
    registered.write_text(registered.read_text() + "\napprovals: [{before: wave, wave: 2, by: names}]\n")
    said = tidegate("stage", "open", "delivery.yaml", "--key", "one")
    assert (said.code, said.err) == (0, "")
    return said.out.strip()


@pytest.fixture
def client(state: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(embedded_uri(state))


def keys(folder: Path) -> Path:
    """A new pair; returns the private one, next to which the public one lies."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = folder / "ledger.key"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "ledger.pub").write_bytes(public)
    return private


@pytest.mark.parametrize("tag", ["tidegate.version", "tidegate.champion"])
def test_a_tag_beside_the_chain_that_is_edited_is_found(tidegate: Tidegate, opened: str, client: Any, tag: str) -> None:
    client.set_tag(opened, tag, "9")
    said = tidegate("audit", "verify", opened)
    assert (said.code, f"changed: {tag}: says 9; planned was " in said.out) == (5, True)


@pytest.mark.slow(reason="a process for each command")
def test_what_was_cut_off_is_found_by_a_head_that_was_noted(tidegate: Tidegate, opened: str, client: Any) -> None:
    (first,) = tidegate("audit", "verify", opened, "-o", "json").json[0]["heads"]
    assert tidegate("approve", opened, "wave@2", "--by", "ann").code == 0
    (head,) = tidegate("audit", "verify", opened, "-o", "json").json[0]["heads"]
    for key in client.get_run(opened).data.tags:
        if key.startswith(f"{EVENT}0002."):
            client.delete_tag(opened, key)
    assert tidegate("audit", "verify", opened).code == 0
    said = tidegate("audit", "verify", opened, "--head", head)
    assert (said.code, f"removed: head {head[:12]}: it was there before" in said.out) == (5, True)
    assert tidegate("audit", "verify", opened, "--head", first).code == 0
    assert tidegate("audit", "verify", opened, "--head", head[:12]).code == 2


def test_with_keys_only_who_has_one_writes(
    tidegate: Tidegate, registered: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = keys(tmp_path)
    (tmp_path / "trust.yaml").write_text("kind: Trust\nledger: {keys: [ledger.pub]}\n")
    monkeypatch.setenv("TIDEGATE_LEDGER_KEY", str(private))
    monkeypatch.setenv("TIDEGATE_TRUST", str(tmp_path / "trust.yaml"))
    opened = tidegate("stage", "open", "delivery.yaml", "--key", "one").out.strip()
    assert "signed by " in tidegate("audit", "verify", opened).out
    assert tidegate("audit", "verify", opened).code == 0
    # A chain of the right shape by somebody without the key, which without keys would count.
    forged = MlflowDeliveries(embedded_uri(state)).join(opened)
    forged.append(Event(at=datetime.now(UTC), step="offline@eu-west-1", kind="done", message=""))
    said = tidegate("stage", "offline@eu-west-1", "--delivery", opened)
    assert (said.code, "unsigned: 2 (offline@eu-west-1 done): nobody signed it" in said.err) == (5, True)
    monkeypatch.setenv("TIDEGATE_LEDGER_KEY", str(tmp_path / "nowhere"))
    assert "the key of the ledger cannot be read from" in tidegate("stage", "build", "--delivery", opened).err
