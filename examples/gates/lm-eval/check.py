"""Runs a task of lm-evaluation-harness on both arms, for a gate of kind `command`.

check.py TASK METRIC MODEL_ARGS [ARGUMENT...]
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

task, metric, model_args, *more = sys.argv[1:]
question = json.load(sys.stdin)


def scores(arm):
    """The score of each question, by its number, its hash and the filter of the answer."""
    with TemporaryDirectory() as folder:
        asked = f"model={question['model']},base_url={question[arm]['url']}/v1/completions,{model_args}"
        words = ("--model", "local-completions", "--model_args", asked, "--tasks", task, *more)
        run = [sys.executable, "-m", "lm_eval", *words, "--log_samples", "--output_path", folder]
        subprocess.run(run, check=True, stdout=sys.stderr)
        lines = [line for file in Path(folder).rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return {(each["doc_id"], each["doc_hash"], each["filter"]): {"score": each[metric]} for each in found}


try:
    stable, canary = scores("stable"), scores("canary")
    pairs = [{"stable": stable.get(key), "canary": canary.get(key)} for key in sorted(stable | canary)]
    print(json.dumps({"pairs": pairs}))
except (subprocess.CalledProcessError, LookupError, OSError, TypeError, ValueError) as error:
    # Exit code 1, which a traceback gives, would be a fail.
    print(f"the harness cannot be read: {error!r}", file=sys.stderr)
    sys.exit(2)
