#!/usr/bin/env bash
# Measures engines on this machine's GPU, unattended, within 40 minutes; JSON for each part in a folder.
#
#   benchmarks/gpu.sh                                    the demo's SmolLM2 in two sizes, into gpu-results/
#   benchmarks/gpu.sh --model DIR --model DIR --to FOLDER
#   benchmarks/gpu.sh --small                            tiny models, few runs; on a CPU where there is no GPU
#
# A part that is measured is not run again, unless --again says so. TIDEGATE_ENGINE_HOME and TIDEGATE_ENGINE_PYTHON name
# the engine environment, as for `tidegate setup`; VENV names tidegate's own. benchmarks/gpu.sh --help has all options.
# Exit codes: 0 all is measured, 1 something is not, 2 bad input, 4 no GPU, or no engine environment.
set -euo pipefail

total=2400
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${VENV:-$root/.venv}

[ -x "$venv/bin/tidegate" ] || make --no-print-directory -C "$root" VENV="$venv" "$venv/installed"
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
case " $* " in *" --help "* | *" -h "*) exec "$venv/bin/python" -m benchmarks.gpu.run --help ;; esac

platform=cpu
if [ -n "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null)" ]; then
    platform=cuda
    # The environment for CPUs may lie at the usual place.
    export TIDEGATE_ENGINE_HOME=${TIDEGATE_ENGINE_HOME:-/opt/tidegate/cuda}
elif [[ " $* " != *" --small "* ]]; then
    echo "gpu: this machine has no GPU (nvidia-smi); with --small it runs on a CPU" >&2
    exit 4
fi

"$venv/bin/tidegate" setup --platform "$platform"
exec "$venv/bin/python" -m benchmarks.gpu.run --seconds "$((total - SECONDS))" "$@"
