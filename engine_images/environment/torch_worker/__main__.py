"""`python -m engine_images.environment.torch_worker < job.json`: writes the job's result, as JSON.

Progress goes to stderr behind a mark, so that nothing that a model prints is taken for ours. A trial that fails
has an `error` in its result and exit code 0: it is a result too. Another exit code is a crash.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from .job import Job, TrialFailure, failure_of, named
from .run import trial

MARK = "tidegate-torch: "


def main() -> int:
    """Run the job on stdin."""
    job = Job.read(json.load(sys.stdin))
    result = _result(job)
    Path(job.result).write_text(json.dumps(result), encoding="utf-8")
    return 0


def _result(job: Job) -> dict[str, Any]:
    try:
        return trial(job, lambda line: print(MARK + line, file=sys.stderr, flush=True))
    except TrialFailure as failure:
        return _error(failure, failure.__cause__)
    except Exception as error:  # noqa: BLE001 - a model's own code may raise anything
        chain = [error, error.__cause__, error.__context__]
        known = next((found for each in chain if each is not None and (found := failure_of(each))), None)
        return _error(known or TrialFailure("model_failed", f"the model failed: {named(error)}"), error)


def _error(failure: TrialFailure, cause: BaseException | None) -> dict[str, Any]:
    detail = "".join(traceback.format_exception(type(cause), cause, _outside(cause.__traceback__))) if cause else ""
    return {"error": {"kind": failure.kind, "message": " ".join(failure.message.split()), "detail": detail}}


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """From the first line that is not ours on: the reader wrote the model, not us."""
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).parent == Path(__file__).parent:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    sys.exit(main())
