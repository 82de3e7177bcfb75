"""Models of a few hundred weights for `test_torch_compile.py`; run by the engine environment's Python."""

import json
from pathlib import Path

import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.down(nn.functional.gelu(self.up(x))), dim=-1)


class Breaks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


def tiny() -> tuple:
    return Tiny(), lambda batch: (torch.randn(batch, 16),)


def scaled(files: Path) -> tuple:
    model = Tiny()
    with torch.no_grad():
        model.up.weight.mul_(json.loads((files / "scale.json").read_text()))
    return model, lambda batch: (torch.randn(batch, 16),)


def breaks() -> tuple:
    return Breaks(), (torch.randn(2, 8),)


def too_big() -> tuple:
    return nn.Linear(1, 1), lambda size: (torch.empty(size * 10**12),)


def forgot() -> object:
    return Tiny()
