"""The options of `serve`. Not the environment: Kubernetes writes variables of its own for every service."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

VLLM = "vllm.entrypoints.launchers.api_server.entry"
"""vLLM's server, as a module of this Python, so that nothing depends on PATH."""


@dataclass(frozen=True)
class ModelSettings:
    """Where an engine is, who signed it, and where its weights come from."""

    root: Path
    public_key: Path | None
    weights: str | None
    weights_cache: Path
    logs: str


@dataclass(frozen=True)
class Settings(ModelSettings):
    """What an operator may say of one engine."""

    run: Path
    host: str
    port: int
    key_policy: str
    grace: float | None
    linger: float
    start_deadline: float
    health_every: float
    health_deadline: float
    threads: int | None
    model_infos: Path | None
    spot: str
    spot_url: str | None
    server: str
    vllm: tuple[str, ...]
    """Arguments for vLLM beside the manifest's."""


def place(text: str) -> Path:
    """A path that means the same in the folder that vLLM starts in."""
    return Path(text).absolute()


def add_run(parser: argparse.ArgumentParser) -> None:
    """The option that `serve` and `drain` share."""
    parser.add_argument(
        "--run", type=place, default=Path("/tmp/tidegate-engine"), help="folder of this engine alone, writable"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """The options that `serve` and `pull` share."""
    option = parser.add_argument
    option("--root", type=place, default=Path("/engine"), help="where the image holds manifest, cache and model")
    option("--public-key", type=place, help="PEM; the manifest must be signed by it")
    option("--weights", help="where the model's files come from, when not from where the manifest says")
    option("--weights-cache", type=place, default=Path("/var/cache/tidegate"), help="folder shared by engines")
    option("--logs", choices=["json", "text"], default="json")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option of `serve`."""
    add_run(parser)
    add_model(parser)
    option = parser.add_argument
    option("--host", default="0.0.0.0", help="address to listen on")
    option("--port", type=int, default=8000)
    option("--key-policy", choices=["warn", "refuse"], default="warn", help="what a difference in the compile key does")
    option("--grace", type=float, help="seconds for open answers at the end; else the manifest's")
    option("--linger", type=float, default=0.0, help="seconds of the grace in which new requests are still taken")
    option("--start-deadline", type=float, default=1800.0, help="seconds until the engine must be ready")
    option("--health-every", type=float, default=10.0, help="seconds for which a proof of health holds")
    option("--health-deadline", type=float, default=10.0, help="seconds for one test inference")
    option("--model-infos", type=Path, help="folder shared by engines: what vLLM has found out about model classes")
    option("--threads", type=int, help="for computing on a CPU; else the cores that this container may use")
    option("--spot", choices=["off", "aws", "gcp"], default="off", help="watch for the cloud's notice and drain then")
    option("--spot-url", help=argparse.SUPPRESS)
    option("--server", default=VLLM, help=argparse.SUPPRESS)
    option("vllm", nargs="*", help="arguments for vLLM, behind --")


def model_settings_of(parsed: argparse.Namespace) -> ModelSettings:
    """The settings of `pull` that were parsed."""
    return ModelSettings(**{name: vars(parsed)[name] for name in ModelSettings.__dataclass_fields__})


def settings_of(parsed: argparse.Namespace) -> Settings:
    """The settings that were parsed."""
    named = {name: value for name, value in vars(parsed).items() if name in Settings.__dataclass_fields__}
    return Settings(**named | {"vllm": tuple(parsed.vllm)})
