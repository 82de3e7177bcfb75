#!/usr/bin/env bash
# A step of CI that waits for the verdict of `tidegate gate serve`, for up to an hour.
# 503 means "not yet": curl asks again after the time that the answer's Retry-After says.
# Exit code: 0 pass, 1 fail, 3 inconclusive, or curl's own when nobody answered in time, or the question is refused.
set -euo pipefail
: "${GATE_URL:?address of gate serve, such as http://tidegate-gate:8095}" "${GATE_TOKEN:?its token}"
: "${STABLE:?version that serves}" "${CANARY:?version on trial}" "${RUN:=${CI_PIPELINE_ID:-${GITHUB_RUN_ID:-}}}"

question=$(jq --null-input --compact-output --arg stable "$STABLE" --arg canary "$CANARY" --arg run "$RUN" \
  '{name: "support-llm", stable: $stable, canary: $canary, run: $run}')
file=$(mktemp)
trap 'rm -f "$file"' EXIT
curl --silent --show-error --fail-with-body --output "$file" --retry 1000 --retry-max-time "${GATE_SECONDS:-3600}" \
  --max-time 20 \
  --header @<(printf 'Authorization: Bearer %s\n' "$GATE_TOKEN") --header 'Content-Type: application/json' \
  --data "$question" "$GATE_URL/v1/conclusion" || {
  code=$?
  jq --raw-output '.reason // .problem' "$file" >&2
  exit "$code"
}
answer=$(<"$file")
jq --raw-output '"\(.outcome): \(.reason)"' <<<"$answer"
case $(jq --raw-output .outcome <<<"$answer") in
  pass) exit 0 ;;
  fail) exit 1 ;;
  *) exit 3 ;;
esac
