"""Which variables a process that we start gets: those that its kind has a use for, and no secret of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

PASS_ON = "TIDEGATE_PASS_ON"
"""Names of further variables for engines and what hosts them, with commas between: the operator's word."""


class Child(StrEnum):
    """What is started."""

    ENGINE = "engine"
    """It runs a model that nobody has judged yet, and whatever compiles it."""
    HOST = "host"
    """The fleet host: it starts engines, and hands them their variables."""
    PROXY = "proxy"
    PROMETHEUS = "prometheus"
    LOAD = "load"
    GIT = "git"
    """With ssh and the credential helpers that it starts."""
    COMMAND = "command"
    """What a gate asks: a program of the team's."""


_ALL = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"})
_ALL_THAT_BEGIN = ("LC_",)
_OF_ENGINES = frozenset({"LD_PRELOAD", "CC", "CXX", "CPATH", "LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"})
_OF_ENGINES_THAT_BEGIN = (
    *("CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "CUBLAS_", "CUDNN_"),
    *("HF_", "VLLM_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "TOKENIZERS_", "RAYON_"),
    *("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "ATEN_", "DNNL_", "ONEDNN_", "MALLOC_"),
)
# No traces, which may show what is sent, and nothing that names another repository than the one that is meant.
_OF_GIT = frozenset(
    {
        *("SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GNUPGHOME"),
        *("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    }
)
_OF_GIT_THAT_BEGIN = ("GIT_SSL_", "GCM_")
_OF_COMMANDS = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR", "no_proxy", "NO_PROXY", "VIRTUAL_ENV"})
_MORE: Mapping[Child, tuple[frozenset[str], tuple[str, ...]]] = {
    Child.ENGINE: (_OF_ENGINES, _OF_ENGINES_THAT_BEGIN),
    Child.HOST: (_OF_ENGINES | {PASS_ON}, (*_OF_ENGINES_THAT_BEGIN, "TIDEGATE_ENGINE")),
    Child.LOAD: (frozenset(), ("TIDEGATE_LOAD_",)),
    Child.GIT: (_OF_GIT, _OF_GIT_THAT_BEGIN),
    Child.COMMAND: (_OF_COMMANDS, ()),
}
_SECRET = re.compile(r"(^|_)(TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|CREDENTIALS|KEY|KEYS)(_|$)")


def variables_for(child: Child, environment: Mapping[str, str]) -> dict[str, str]:
    """What of `environment` a child of that kind gets."""
    names, begin = _MORE.get(child, (frozenset(), ()))
    passed = environment.get(PASS_ON, "") if child in (Child.ENGINE, Child.HOST) else ""
    named = {name.strip() for name in passed.split(",")}

    def wanted(name: str) -> bool:
        if name in named:
            return True
        if _SECRET.search(name.upper()):
            return False
        return name in _ALL | names or name.startswith((*_ALL_THAT_BEGIN, *begin))

    return {name: value for name, value in environment.items() if wanted(name)}
