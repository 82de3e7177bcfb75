from __future__ import annotations

from pathlib import Path

from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator

PAGE = Path(__file__).parents[3] / "docs/reference/engine-checks.md"


def test_every_accelerator_has_its_numbers_and_their_source() -> None:
    assert set(DEVICES) == set(Accelerator)
    assert all(device.source for device in DEVICES.values())


def test_memory_is_that_of_a_device_that_exists() -> None:
    sizes = [device.memory_bytes for device in DEVICES.values() if device.memory_bytes is not None]
    assert all(14 * GIBIBYTE < size < 200 * GIBIBYTE for size in sizes)


def test_the_page_lists_them_with_the_same_numbers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, device in DEVICES.items():
        memory = "the machine" if device.memory_bytes is None else f"{device.memory_bytes // MEBIBYTE:,} MiB"
        precision = f"{'yes' if device.bfloat16 else 'no'} | {'yes' if device.fp8 else 'no'}"
        assert f"| `{name}` | {memory} | {precision} | {device.source} |" in page
