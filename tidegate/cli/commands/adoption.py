"""`tidegate rollout adopt` and `release`: what they print."""

from __future__ import annotations

from pathlib import Path

from rollouts.adoption.model import Write
from tidegate.app.clusters.adoption import AdoptionReport, AdoptionRequest, adopt_rollout, release_rollout
from tidegate.cli.output import Output, print_data, say


def adopt(asked: AdoptionRequest, *, version: str | None, state: Path, tracking_uri: str | None, output: Output) -> int:
    """Take over, and print each write as it is sent."""
    tell = _silent if output.is_data or asked.dry_run else _say
    report = adopt_rollout(asked, version, state, tracking_uri, tell)
    if output.is_data:
        return _print(report, output)
    if asked.dry_run:
        _say_all(report, "would be adopted by these writes; nothing was written")
    else:
        done = "is adopted" if report.writes else "was adopted before; nothing was written"
        say(f"{report.region}: {report.delivery} {done}")
    for each in report.writers:
        say(f"{each.tool} ({each.name}) has {', '.join(each.objects)}: {each.advice}")
        if each.paste:
            say(*(f"  {line}" for line in each.paste.splitlines()))
    if not asked.dry_run:
        say(f"next: {report.next_step}")
    return 0


def release(asked: AdoptionRequest, *, output: Output) -> int:
    """Give back, and print each write as it is sent."""
    tell = _silent if output.is_data or asked.dry_run else _say
    report = release_rollout(asked, tell)
    if output.is_data:
        return _print(report, output)
    if asked.dry_run:
        _say_all(report, "would be given back by these writes; nothing was written")
    else:
        say(f"{report.region}: {report.delivery} is given back")
    return 0


def _print(report: AdoptionReport, output: Output) -> int:
    print_data(
        {
            "region": report.region,
            "delivery": report.delivery,
            "writes": [{"object": each.subject, "verb": each.verb, "what": each.what} for each in report.writes],
            "writers": [each.model_dump(mode="json") for each in report.writers],
        },
        output,
    )
    return 0


def _say_all(report: AdoptionReport, end: str) -> None:
    for write in report.writes:
        _say(write)
    say(f"{report.region}: {report.delivery} {end}")


def _say(write: Write) -> None:
    say(f"{write.subject}: {write.what}")


def _silent(_: Write) -> None:
    return
