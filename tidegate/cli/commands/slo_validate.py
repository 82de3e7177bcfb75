"""`tidegate slo validate`: whether rules can be made of SLO specs, and every reason why not."""

from __future__ import annotations

from dataclasses import asdict

from tidegate.cli.output import print_json
from tidegate.cli.slo_input import Asked, ruled
from tidegate.core.errors import ExitCode
from tidegate.core.spec import SpecError


def run(asked: Asked, *, as_json: bool) -> int:
    """Tell what the files promise, or all that is wrong with them."""
    try:
        documents = ruled(asked)
    except SpecError as error:
        if not as_json:
            raise
        print_json({"valid": False, "files": [], "problems": [asdict(problem) for problem in error.problems]})
        return ExitCode.USAGE
    files = {path: [slo for document in found for slo in document.group.slos] for path, found in documents.items()}
    if as_json:
        listed = [{"file": str(path), "slos": [slo.id for slo in slos]} for path, slos in files.items()]
        print_json({"valid": True, "files": listed, "problems": []})
        return ExitCode.DELIVERED
    for path, slos in files.items():
        print(f"{path}: {', '.join(slo.id for slo in slos)}")
    return ExitCode.DELIVERED
