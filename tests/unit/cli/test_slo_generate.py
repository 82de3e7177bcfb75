"""`tidegate slo generate`: specs in, rules out; all of them or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.terminal import pipe_in

from tidegate.cli import main

PLAIN = """\
version: prometheus/v1
service: {service}
slos:
  - name: answers
    objective: 99.9
    sli:
      events:
        error_query: sum(rate(http_requests_total{{code=~"5.."}}[{{{{.window}}}}]))
        total_query: sum(rate(http_requests_total[{{{{.window}}}}]))
    alerting:
      name: {service}Answers
"""
OBJECT = """\
apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
metadata: {name: checkout, namespace: shop}
spec:
  service: checkout
  slos:
    - name: answers
      objective: 99
      sli: {raw: {errorRatioQuery: "avg_over_time(checkout_errors[{{.window}}])"}}
      alerting: {pageAlert: {disable: true}, ticketAlert: {disable: true}}
"""
OPEN = """\
apiVersion: openslo/v1alpha
kind: SLO
metadata: {name: speed}
spec:
  service: search
  objectives:
    - target: 0.99
      ratioMetrics:
        good: {source: prometheus, queryType: promql, query: "sum(rate(fast[{{.window}}]))"}
        total: {source: prometheus, queryType: promql, query: "sum(rate(every[{{.window}}]))"}
  timeWindows: [{unit: Day, count: DAYS}]
"""


def plain(service: str) -> str:
    return PLAIN.format(service=service)


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def groups(text: str) -> list[str]:
    return [group["name"] for group in yaml.safe_load(text)["groups"]]


def rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_rules_of_one_file_go_to_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["slo", "generate", written(tmp_path, "a.yaml", plain("chat"))]) == 0
    out, err = capsys.readouterr()
    assert groups(out) == [f"sloth-slo-{part}-chat-answers" for part in ("sli-recordings", "meta-recordings", "alerts")]
    assert err == ""


def test_a_spec_may_come_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pipe_in(monkeypatch, [plain("chat").encode()])
    assert main(["slo", "generate", "-"]) == 0
    assert len(groups(capsys.readouterr().out)) == 3


def test_plain_documents_of_a_file_share_one_document_because_prometheus_reads_no_second(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = f"---\n{plain('chat')}---\n---\n{plain('search')}"
    target = tmp_path / "rules.yaml"
    assert main(["slo", "generate", written(tmp_path, "a.yaml", text), str(target)]) == 0
    assert [name.rsplit("-", 2)[1] for name in groups(target.read_text())] == ["chat"] * 3 + ["search"] * 3
    assert capsys.readouterr() == ("", f"{target}: the rules of 2 SLOs\n")


def test_kubernetes_objects_stay_objects_next_to_plain_rules(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["slo", "generate", written(tmp_path, "a.yaml", f"{OBJECT}---\n{plain('chat')}")]) == 0
    first, second = yaml.safe_load_all(capsys.readouterr().out)
    assert [group["name"][-12:] for group in first["groups"]] == ["chat-answers"] * 3
    assert (second["kind"], second["metadata"]["name"], second["metadata"]["namespace"]) == (
        "PrometheusRule",
        "checkout",
        "shop",
    )
    assert len(second["spec"]["groups"]) == 2


def test_a_folder_becomes_a_folder_with_the_same_names(tmp_path: Path) -> None:
    for name in ("a.yml", "deep/b.yaml", "deep/b_test.yaml"):
        written(tmp_path / "slos", name, plain(Path(name).stem.replace("_", "-") + "-service"))
    out = tmp_path / "rules"
    assert main(["slo", "generate", str(tmp_path / "slos"), str(out), "-e", "_test"]) == 0
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert found == ["a.yml", "deep/b.yaml"]


def test_extra_labels_are_on_everything_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", plain("chat"))
    assert main(["slo", "generate", file, "-l", "team=serving", "-l", "tier=1=a", "--disable-alerts"]) == 0
    labels = [rule["labels"] for rule in rules(capsys.readouterr().out)]
    assert {(each["team"], each["tier"]) for each in labels} == {("serving", "1=a")}


@pytest.mark.parametrize(("flag", "kinds"), [("--disable-recordings", {"alert"}), ("--disable-alerts", {"record"})])
def test_half_of_the_rules_can_be_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, kinds: set[str]
) -> None:
    assert main(["slo", "generate", written(tmp_path, "a.yaml", plain("chat")), flag]) == 0
    assert {kind for rule in rules(capsys.readouterr().out) for kind in ("alert", "record") if kind in rule} == kinds


def test_the_period_is_a_months_unless_told_otherwise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", plain("chat"))
    for option, period in ([], "30d"), (["--default-slo-period", "28d"], "4w"):
        assert main(["slo", "generate", file, *option]) == 0
        recorded = {rule.get("record") for rule in rules(capsys.readouterr().out)}
        assert f"slo:sli_error:ratio_rate{period}" in recorded


def test_when_one_spec_is_wrong_nothing_is_written_and_every_problem_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "slos"
    written(source, "a.yaml", plain("chat"))
    written(source, "b.yaml", plain("chat"))
    written(source, "c.yaml", plain("search").replace("objective: 99.9", "objective: 101"))
    assert main(["slo", "generate", str(source), str(tmp_path / "rules")]) == 2
    assert not (tmp_path / "rules").exists()
    out, err = capsys.readouterr()
    assert out == ""
    twice, range_ = sorted(err.splitlines())
    assert twice.startswith(f"{source}/b.yaml:4: slos[0].name: found the id chat-answers twice; expected ")
    assert f"{source}/a.yaml:4" in twice
    assert range_.startswith(f"{source}/c.yaml:5: slos[0].objective: found 101")


def test_a_period_without_windows_is_told_of_every_slo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", OPEN.replace("DAYS", "7"))
    assert main(["slo", "generate", file]) == 2
    assert capsys.readouterr().err == f"{file}:1: found search-speed-0 over 1w; expected a period of 4w, 30d\n"


def test_old_rules_stay_when_new_ones_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, out = tmp_path / "slos", tmp_path / "rules"
    written(source, "a.yaml", plain("chat"))
    written(source, "b/c.yaml", plain("search"))
    old = written(out, "a.yaml", "old")
    written(out, "b", "a file where a folder must be")
    assert main(["slo", "generate", str(source), str(out)]) == 2
    assert capsys.readouterr().err == f"tidegate: {out}/b: file exists\n"
    assert Path(old).read_text() == "old"
    assert sorted(path.name for path in out.iterdir()) == ["a.yaml", "b"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such file or directory; name a file or folder with SLOs"),
        (["slos"], "slos is a directory and - is not; name a directory as OUTPUT"),
        (["slos", "./slos"], "slos is the input itself; name another directory as OUTPUT"),
        (["a.yaml", "slos"], "slos is a directory and a.yaml is not; name a file as OUTPUT"),
        (
            ["slos", "out", "-n", "nothing"],
            "slos has no .yml or .yaml file; or --fs-include and --fs-exclude leave none",
        ),
        (
            ["slos", "out", "-e", "("],
            "--fs-exclude: found '('; expected a regular expression (missing ), unterminated subpattern at position 0)",
        ),
        (["a.yaml", "-l", "team"], "--extra-labels: found 'team'; expected key=value"),
        (
            ["a.yaml", "-l", "1=x"],
            "--extra-labels: found '1=x'; expected key=value, "
            "with a key of letters, digits and '_' that begins with no digit",
        ),
        (
            ["a.yaml", "--default-slo-period", "month"],
            "--default-slo-period: found 'month'; "
            "expected a duration as Prometheus writes it, such as 5m, 1h30m or 30d",
        ),
        (
            ["a.yaml", "--disable-alerts", "--disable-recordings"],
            "a.yaml: no rules are left; --disable-recordings or --disable-alerts leave none",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a.yaml", plain("chat"))
    written(tmp_path, "slos/a.yaml", plain("chat"))
    assert main(["slo", "generate", *arguments]) == 2
    assert capsys.readouterr() == ("", f"tidegate: {sentence}\n")
