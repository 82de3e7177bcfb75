#!/usr/bin/env bash
# A step of CI that asks `tidegate gate serve` until there is a verdict, for up to an hour.
# Exit code: 0 pass, 1 fail, 3 inconclusive or none in time; curl's own when the question is refused, or nobody answers.
set -euo pipefail
: "${JUDGE_URL:?address of gate serve, such as http://tidegate-judge:8095}" "${JUDGE_TOKEN:?its token}"
: "${STABLE:?version that serves}" "${CANARY:?version on trial}"

question=$(jq --null-input --compact-output --arg stable "$STABLE" --arg canary "$CANARY" \
  '{service: "support-llm", stable: $stable, canary: $canary}')
while :; do
  answer=$(curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused --max-time 20 \
    --header @<(printf 'Authorization: Bearer %s\n' "$JUDGE_TOKEN") --header 'Content-Type: application/json' \
    --data "$question" "$JUDGE_URL/v1/verdict") || {
    code=$?
    jq --raw-output '.problem // empty' <<<"$answer" >&2
    exit "$code"
  }
  outcome=$(jq --raw-output .outcome <<<"$answer")
  [[ "$outcome" = running || "$outcome" = error ]] && ((SECONDS < ${JUDGE_SECONDS:-3600})) || break
  sleep "${JUDGE_PAUSE:-15}"
done
jq --raw-output '"\(.outcome): \(.gate): \(.sentence)"' <<<"$answer"
case $outcome in
  pass) exit 0 ;;
  fail) exit 1 ;;
  *) exit 3 ;;
esac
