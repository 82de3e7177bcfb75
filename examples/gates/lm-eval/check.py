"""Runs a task of lm-evaluation-harness on both arms, for a gate of kind `command`.

check.py MAX_DROP TASK METRIC MODEL_ARGS [ARGUMENT...]
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

max_drop, task, metric, model_args, *more = sys.argv[1:]


def scores(arm):
    """The score of each question, by its number, its hash and the filter of the answer."""
    with TemporaryDirectory() as folder:
        url, model = os.environ[f"TIDEGATE_{arm}_URL"], os.environ["TIDEGATE_MODEL"]
        asked = f"model={model},base_url={url}/v1/completions,{model_args}"
        words = ("--model", "local-completions", "--model_args", asked, "--tasks", task, *more)
        run = [sys.executable, "-m", "lm_eval", *words, "--log_samples", "--output_path", folder]
        subprocess.run(run, check=True, stdout=sys.stderr)
        lines = [line for file in Path(folder).rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return {(each["doc_id"], each["doc_hash"], each["filter"]): each[metric] for each in found}


try:
    stable, canary = scores("STABLE"), scores("CANARY")
    # A question that one arm alone was asked is a KeyError: nothing can be said then.
    drop = fmean(stable[key] - canary[key] for key in stable.keys() | canary.keys())
    numbers = {"stable_mean": fmean(stable.values()), "canary_mean": fmean(canary.values())}
except (subprocess.CalledProcessError, LookupError, OSError, TypeError, ValueError) as error:
    # Exit code 1, which a traceback gives, would be a fail.
    print(f"the harness cannot be read: {error!r}", file=sys.stderr)
    sys.exit(2)
reason = f"{metric} of {task} drops by {drop:.3f} over {len(stable)} questions (allowed {max_drop})"
print(json.dumps({"outcome": "fail" if drop > float(max_drop) else "pass", "reason": reason, "numbers": numbers}))
