"""A process that we start has no secret of ours."""

from __future__ import annotations

import pytest

from tidegate.core.children import Child, variables_for

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "a",
    "SLACK_URL": "b",
    "TIDEGATE_SLACK_URL": "c",
    "TIDEGATE_JUDGE_KEY": "d",
    "TIDEGATE_WEBHOOK_SECRET": "e",
    "MLFLOW_TRACKING_URI": "http://ci:hunter2@mlflow",
    "MLFLOW_TRACKING_PASSWORD": "f",
    "KUBECONFIG": "/kube/config",
    "HF_TOKEN": "g",
    "VLLM_API_KEY": "h",
    "HTTPS_PROXY": "http://me:pw@proxy",
}
PLAIN = {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp"}
OF_ENGINES = {"CUDA_VISIBLE_DEVICES": "0", "VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": "2", "LD_PRELOAD": "x.so"}


@pytest.mark.parametrize("child", Child)
def test_no_child_gets_a_secret_and_each_gets_where_it_is(child: Child) -> None:
    given = variables_for(child, SECRETS | PLAIN)
    # Git has to find its way out, as the machine's own does.
    out = {"HTTPS_PROXY": SECRETS["HTTPS_PROXY"]} if child is Child.GIT else {}
    assert given == PLAIN | out


def test_git_gets_what_lets_it_in_and_no_trace_of_what_it_sends() -> None:
    ways = {
        "SSH_AUTH_SOCK": "/run/agent",
        "GIT_SSH_COMMAND": "ssh -v",
        "GIT_ASKPASS": "/bin/ask",
        "GIT_SSL_CAINFO": "/ca",
    }
    others = {"GIT_TRACE": "1", "GIT_TRACE_CURL": "1", "GIT_DIR": "/elsewhere", "GIT_CONFIG_PARAMETERS": "x"}
    assert variables_for(Child.GIT, ways | others) == ways
    assert variables_for(Child.ENGINE, ways) == {}


def test_engines_and_their_host_get_what_computing_needs_and_others_do_not() -> None:
    assert variables_for(Child.ENGINE, OF_ENGINES) == OF_ENGINES
    assert variables_for(Child.HOST, OF_ENGINES) == OF_ENGINES
    for child in (Child.PROXY, Child.PROMETHEUS, Child.LOAD):
        assert variables_for(child, OF_ENGINES) == {}


def test_tokens_of_a_tokenizer_are_none() -> None:
    assert variables_for(Child.ENGINE, {"TOKENIZERS_PARALLELISM": "false"}) == {"TOKENIZERS_PARALLELISM": "false"}


def test_the_operator_may_pass_on_more_by_name_to_engines_alone() -> None:
    environment = {"TIDEGATE_PASS_ON": "LMCACHE_CONFIG_FILE, CACHE_KEY", "LMCACHE_CONFIG_FILE": "/l", "CACHE_KEY": "k"}
    assert variables_for(Child.ENGINE, environment) == {"LMCACHE_CONFIG_FILE": "/l", "CACHE_KEY": "k"}
    assert variables_for(Child.HOST, environment) == environment
    assert variables_for(Child.PROXY, environment) == {}
