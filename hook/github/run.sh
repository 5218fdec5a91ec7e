#!/usr/bin/env bash
# The action's step. Reads LOG, IMAGE, EXIT_STATUS, FAIL, OUT_DIR and GitHub's own variables.
set -euo pipefail
cd "$GITHUB_WORKSPACE"
mkdir -p -- "$OUT_DIR"
if [ ! -e "$LOG" ]; then
  echo "::error title=check-failed-run::The log $(printf '%s' "$LOG" | tr -d '\r\n') does not exist in the workspace. Does the training step write it, also when it fails?"
  exit 2
fi

options=(--run-id "${GITHUB_RUN_ID:-local}" --out-dir "$OUT_DIR")
if [ -n "$EXIT_STATUS" ]; then options+=(--exit-status "$EXIT_STATUS"); fi
# As the runner's own user, so that the files it writes can be removed again; no network, nothing but the workspace.
check() {
  docker run --rm --network none --user "$(id -u):$(id -g)" -v "$PWD:/github/workspace" -w /github/workspace -e NO_COLOR=1 \
    "$IMAGE" "$LOG" "${options[@]}" "$@"
}

status=0
check --format github --exit-code || status=$?
if [ "$status" -eq 2 ]; then exit 2; fi
check --quiet --format markdown >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
check --quiet --format sarif -o "$OUT_DIR/check-failed-run.sarif"
{
  printf 'primary-cause=%s\n' "$(sed -n 's/^  "primary_cause": "\([a-z-]*\)",\{0,1\}$/\1/p' "$OUT_DIR/check-failed-run.json")"
  printf 'report=%s\nsarif=%s\n' "$OUT_DIR/check-failed-run.json" "$OUT_DIR/check-failed-run.sarif"
} >>"${GITHUB_OUTPUT:-/dev/null}"
if [ "$FAIL" = true ]; then exit "$status"; fi
