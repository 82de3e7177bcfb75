"""Builds tidegate and proves what was built; makes a release of it, and publishes nothing.

    python release.py build      # dist/: wheel and sdist, tried in environments of their own
    python release.py release    # the same from a clean tree, with SBOM, checksums and notes

The tree of the commit is built twice, at two places, and both must give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import metadata
from pathlib import Path
from zipfile import ZipFile

from engine_images.sbom import installed_packages, sbom_of_application
from tidegate import __version__
from tidegate.core.adapters.extras import install_command
from tidegate.core.errors import Refused, TidegateError

ROOT = Path(__file__).parent
UV = Path(sys.executable).with_name("uv")
PACKAGES = ("tidegate", "pipelines", "rollouts", "gates", "registry", "engine_images", "slo")
CORE_COMMANDS: Mapping[tuple[str, ...], int] = {
    ("--help",): 0,
    ("schema", "delivery"): 0,
    ("slo", "export", "{examples}/slo/delivery.yaml", "{scratch}"): 0,
    ("rollout", "render", "{examples}/kubernetes/delivery.yaml", "--as", "workflow"): 0,
    ("gate", "check", "{examples}/gates/gates.yaml", "{examples}/gates/evidence.jsonl"): 1,
    ("plan", "{examples}/kubernetes/delivery.yaml"): 4,
}
"""What the core must do alone, with the exit code: the evidence is of a slow version, and no MLflow answers."""
NOBODY = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
LEFT_OUT = {("setup",): "uv", ("engine", "build", "models:/x/1"): "cyclonedx"}
"""Commands that an extra brings, with the module that they miss."""


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says; 2 when it is refused."""
    try:
        if list(arguments) == ["build"]:
            build(ROOT / "dist", ROOT)
        elif list(arguments) == ["release"]:
            release(ROOT / "dist")
        else:
            print((__doc__ or "").strip(), file=sys.stderr)
            return 2
    except TidegateError as error:
        print(f"release: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


def release(dist: Path) -> None:
    """Everything that is published of a version, in `dist`, and what a person does next.

    Raises:
        Refused: the tree is not clean, the changelog has no such version, or what was built does not hold.
    """
    notes = ready_notes(
        changed=_git("status", "--porcelain"),
        tags=_git("tag", "--list").split(),
        changelog=(ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        version=__version__,
    )
    with tempfile.TemporaryDirectory(prefix="tidegate-release-") as name:
        trees = [_exported(Path(name) / place) for place in ("one", "another")]
        again = Path(name) / "again"
        build(dist, trees[0])
        _run(UV, "build", "--quiet", "--out-dir", again, trees[1], env=_dated())
        refuse_different(sums_of(_artifacts(dist)), sums_of(_artifacts(again)))
        everything = environment_with(Path(name) / "all", f"{_wheel(dist)}[all]")
        folders = map(str, (everything / "lib").glob("python3.*/site-packages"))
        sbom = sbom_of_application("tidegate", __version__, installed_packages(folders), sums_of(_artifacts(dist)))
    (dist / f"tidegate-{__version__}.cdx.json").write_bytes(sbom)
    (dist / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    published = sorted(path for path in dist.iterdir() if path.is_file() and path.name[0] != ".")
    (dist / "SHA256SUMS").write_text("".join(f"{sum_}  {file}\n" for file, sum_ in sums_of(published).items()))
    print(next_steps(__version__, [path.name for path in published]))


def ready_notes(*, changed: str, tags: Iterable[str], changelog: str, version: str) -> str:
    """The notes of the version, when everything is as it must be for a release of it.

    Raises:
        Refused: the tree is not clean, the version was released, or the changelog does not tell of it.
    """
    if changed:
        first = changed.splitlines()[0].strip()
        raise Refused(f"the tree is not what was committed: {first}", hint="commit it, or take it out of the way")
    if f"v{version}" in tags:
        raise Refused(f"v{version} is tagged already", hint="raise __version__ in tidegate/__init__.py")
    return notes_of(changelog, version)


def notes_of(changelog: str, version: str) -> str:
    """What the changelog says of the version.

    Raises:
        Refused: it has no dated section of it with anything in it, or says something of a later one.
    """
    parts = re.split(r"^## \[(.+?)\](.*)$", changelog, flags=re.MULTILINE)[1:]
    sections = {parts[at]: (parts[at + 1].strip(), parts[at + 2].strip()) for at in range(0, len(parts), 3)}
    if version not in sections:
        wanted = f"turn [Unreleased] into `## [{version}] - YYYY-MM-DD`, and begin a new one above it"
        raise Refused(f"CHANGELOG.md has no version {version}", hint=wanted)
    date, text = sections[version]
    if not re.fullmatch(r"- \d{4}-\d{2}-\d{2}", date):
        raise Refused(f"CHANGELOG.md does not say when {version} was released", hint=f"found `{date or 'no date'}`")
    if not text:
        raise Refused(f"CHANGELOG.md says nothing of {version}")
    if sections.get("Unreleased", ("", ""))[1]:
        raise Refused("CHANGELOG.md has changes that are not released", hint=f"they belong to {version}, or later")
    return f"# tidegate {version}\n\n{text}\n"


def build(dist: Path, tree: Path) -> None:
    """The sdist of the tree, the wheel of that sdist, and the proof that the wheel is whole.

    Raises:
        Refused: it is not.
    """
    shutil.rmtree(dist, ignore_errors=True)
    _run(UV, "build", "--quiet", "--out-dir", dist, tree, env=_dated())
    refuse_incomplete(_wheel(dist))
    with tempfile.TemporaryDirectory(prefix="tidegate-check-") as name:
        try_core(environment_with(Path(name) / "core", str(_wheel(dist))), ROOT / "examples")
        for extra in sorted(metadata("tidegate").get_all("Provides-Extra") or ()):
            _run(UV, "pip", "install", "--quiet", "--dry-run", "--python", Path(name) / "core/bin/python",
                 "--constraints", ROOT / "requirements.lock", f"{_wheel(dist)}[{extra}]")  # fmt: skip
    print(f"{', '.join(path.name for path in _artifacts(dist))}: the core runs alone, every extra resolves")


def refuse_incomplete(wheel: Path) -> None:
    """Look into the wheel.

    Raises:
        Refused: a package lacks its marker of types, or the metadata a part.
    """
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        described = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    lacks = [f"{package}/py.typed" for package in PACKAGES if f"{package}/py.typed" not in names]
    head, _, readme = described.partition("\n\n")
    fields = {line.partition(":")[0] for line in head.splitlines()}
    lacks += sorted({"Summary", "License-Expression", "Requires-Python", "Classifier", "Provides-Extra"} - fields)
    lacks += [] if readme.startswith("# tidegate") else ["the README"]
    if lacks:
        raise Refused(f"{wheel.name} lacks {', '.join(lacks)}")


def try_core(environment: Path, examples: Path) -> None:
    """Run commands of the core in an environment without any extra, and some that say which extra they want.

    Raises:
        Refused: one ends otherwise than it should.
    """
    variables = os.environ | NOBODY | {"TIDEGATE_ROOT": str(examples)}
    scratch = environment.with_name("scratch")
    for words, code in CORE_COMMANDS.items():
        _ended(environment, [word.format(examples=examples, scratch=scratch) for word in words], code, variables)
    for words, module in LEFT_OUT.items():
        told = _ended(environment, words, 2, variables)
        if f"run: {install_command(module)}" not in told or told.count("\n") != 1:
            raise Refused(f"tidegate {words[0]} does not say what installs {module}", hint=told.strip())


def _ended(environment: Path, words: Sequence[str], code: int, variables: Mapping[str, str]) -> str:
    """What the command says for people; it must end with that code."""
    command: list[str | Path] = [environment / "bin/tidegate", *words]
    # Not here: the tree would be found in place of what was installed.
    ended = subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, check=False)
    if ended.returncode != code:
        told = (ended.stderr or ended.stdout).strip()[-300:]
        raise Refused(f"tidegate {' '.join(words)} ends with {ended.returncode}, not {code}", hint=told)
    return ended.stderr


def refuse_different(one: Mapping[str, str], another: Mapping[str, str]) -> None:
    """Compare two builds of the same commit.

    Raises:
        Refused: they differ.
    """
    differ = sorted(name for name in {*one, *another} if one.get(name) != another.get(name))
    if differ:
        raise Refused(f"a second build gives another {differ[0]}", hint="something of the place or the time is in it")


def sums_of(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each file, by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def next_steps(version: str, published: Iterable[str]) -> str:
    """What is left to a person."""
    return "\n".join(
        [
            f"dist/ has {', '.join(published)}, and SHA256SUMS. Nothing was published. Next:",
            f"  git tag --sign v{version} --message 'tidegate {version}' && git push origin v{version}",
            f"  uv publish dist/tidegate-{version}.tar.gz dist/tidegate-{version}-py3-none-any.whl",
            "  and attach the other files to the release, with RELEASE_NOTES.md as its text",
        ]
    )


def environment_with(place: Path, requirement: str) -> Path:
    """A fresh one with that, and what it requires in the versions that tests ran with."""
    _run(UV, "venv", "--quiet", "--python", sys.executable, place)
    python = ("--python", place / "bin/python")
    _run(UV, "pip", "install", "--quiet", *python, "--constraints", ROOT / "requirements.lock", requirement)
    return place


def _exported(place: Path) -> Path:
    """What was committed, and nothing else."""
    archive = place.with_suffix(".tar")
    _git("archive", "--output", str(archive), "HEAD")
    shutil.unpack_archive(archive, place, filter="data")
    return place


def _dated() -> dict[str, str]:
    """The time of the commit in place of that of the build."""
    return os.environ | {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct").strip()}


def _artifacts(dist: Path) -> list[Path]:
    return sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])


def _wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _run(*words: str | Path, env: Mapping[str, str] | None = None) -> None:
    ended = subprocess.run(list(words), env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        told = (ended.stderr or ended.stdout).strip()[-1000:]
        raise Refused(f"{Path(words[0]).name} {' '.join(map(str, words[1:3]))} ends with {ended.returncode}", hint=told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
