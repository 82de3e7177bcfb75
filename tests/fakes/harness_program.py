"""A program that is called as `lm_eval` is and writes its files: it asks chat completions and compares the answers.

Its questions are `TASK.jsonl` in the folder of `--include_path`. In `asked.txt` of its working folder it leaves a line
for each run: whom it asked. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any


def main() -> None:
    said = _arguments()
    model = dict(pair.split("=", 1) for pair in said.model_args.split(","))
    lines = (Path(said.include_path) / f"{said.tasks}.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines][: said.limit]
    with Path("asked.txt").open("a", encoding="utf-8") as asked:
        asked.write(f"{said.model} {model['base_url']} {said.tasks} {len(questions)}\n")
    samples = [_sample(number, question, model) for number, question in enumerate(questions)]
    _write(Path(said.output_path) / model["model"], said.tasks, samples, total=len(lines))
    print(f"|{said.tasks}|exact_match|{sum(sample['exact_match'] for sample in samples) / len(samples):.4f}|")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--model_args", "--tasks", "--include_path", "--output_path"):
        parser.add_argument(name, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--log_samples", action="store_true", required=True)
    return parser.parse_args()


def _sample(number: int, question: dict[str, str], model: dict[str, str]) -> dict[str, Any]:
    answer = _answer(model, question["prompt"])
    return {
        "doc_id": number,
        "doc": question,
        "filtered_resps": [answer],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": hashlib.sha256(json.dumps(question).encode()).hexdigest(),
        "exact_match": float(answer == question["expected"]),
    }


def _answer(model: dict[str, str], prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": model["model"], "messages": messages, "max_tokens": 24, "temperature": 0}
    request = urllib.request.Request(model["base_url"], json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def _write(folder: Path, task: str, samples: list[dict[str, Any]], *, total: int) -> None:
    folder.mkdir(parents=True)
    time = datetime.now().isoformat().replace(":", "-")
    results = {
        "higher_is_better": {task: {"exact_match": True}},
        "n-samples": {task: {"original": total, "effective": len(samples)}},
        "versions": {task: 1.0},
        "lm_eval_version": "0.4.13",
    }
    (folder / f"results_{time}.json").write_text(json.dumps(results), encoding="utf-8")
    text = "".join(f"{json.dumps(sample)}\n" for sample in samples)
    (folder / f"samples_{task}_{time}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
