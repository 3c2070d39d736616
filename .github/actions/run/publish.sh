#!/bin/bash
# Shows how the job ended on the commit, as a status, and on the pull request, as a comment that the next run of the
# same preset replaces. PUBLISH has the words `status` and `comment`, or one of them. A call that fails is a warning.
set -u
context="kakeya-bridge/$(printf %s "$PRESET" | tr -cd 'a-z0-9-')"
event=${GITHUB_EVENT_PATH:-/dev/null}
commit=$(jq -r '.pull_request.head.sha // empty' "$event" 2>/dev/null)
commit=${commit:-$GITHUB_SHA}
number=$(jq -r '.pull_request.number // .issue.number // empty' "$event" 2>/dev/null | tr -cd 0-9)
answer="$RUNNER_TEMP/kakeya-api.json"
body="$RUNNER_TEMP/kakeya-body.json"

# The token is in no argument, which other users of the machine could read.
call() {
  local method=$1 path=$2
  shift 2
  printf 'Authorization: Bearer %s\nAccept: application/vnd.github+json\nX-GitHub-Api-Version: 2022-11-28\n' "$TOKEN" \
    | curl -sS --fail --max-time 30 -X "$method" -H @- -o "$answer" "$@" -- "$GITHUB_API_URL/$path" 2>/dev/null
}
warn() { printf '::warning title=kakeya-bridge::%s\n' "$1"; }

set_status() {
  local state=error
  case "$CODE" in 0) state=success ;; 1 | 4 | 5 | 7 | 124) state=failure ;; esac
  local text=$STATE
  if [ -z "$STATE" ]; then text='no answer in time'; fi
  if [ "$REFUSED" = true ]; then text='the answer does not hold'; else text="$text${GATE:+, $GATE}${VOUCHER:+, $VOUCHER}"; fi
  jq -n --arg state "$state" --arg text "$text" --arg context "$context" \
    --arg url "${GITHUB_SERVER_URL:-}/$GITHUB_REPOSITORY/actions/runs/${GITHUB_RUN_ID:-}" \
    '{state: $state, description: $text[:140], context: $context, target_url: $url}' >"$body"
  call POST "repos/$GITHUB_REPOSITORY/statuses/$commit" -d "@$body" \
    || warn 'The status could not be set. Does the job have the permission statuses: write?'
}

# The number of this account's comment about the same preset, if there is one. Anybody may write such a comment.
find_comment() {
  local me=github-actions[bot] page
  if call GET user; then me=$(jq -r .login "$answer"); fi
  for page in 1 2 3 4 5 6 7 8 9 10; do
    call GET "repos/$GITHUB_REPOSITORY/issues/$number/comments?per_page=100&page=$page" || return 1
    jq -r --arg me "$me" --arg mark "$mark" \
      'map(select(.user.login == $me and (.body | startswith($mark)))) | (first | .id) // empty' "$answer"
    if [ "$(jq length "$answer")" -lt 100 ]; then return 0; fi
  done
}

write_comment() {
  local mark="<!-- $context -->" id summary="$RUNNER_TEMP/kakeya-summary.md"
  if [ -z "$number" ]; then return 0; fi
  if ! [ -f "$summary" ]; then return 0; fi
  # GitHub takes 65,536 characters. Whatever is left open by the cut ends with the comment.
  { printf '%s\n' "$mark"; head -c 60000 "$summary" | iconv -c -f UTF-8 -t UTF-8; } | jq -Rs '{body: .}' >"$body"
  if id=$(find_comment); then
    id=$(printf '%s\n' "$id" | head -n 1 | tr -cd 0-9)
    if [ -n "$id" ]; then
      call PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" -d "@$body" && return 0
    else
      call POST "repos/$GITHUB_REPOSITORY/issues/$number/comments" -d "@$body" && return 0
    fi
  fi
  warn 'The comment could not be written. Does the job have the permission pull-requests: write?'
}

for word in $PUBLISH; do
  case "$word" in
    status) set_status ;;
    comment) write_comment ;;
    *) warn 'The input publish takes the words status and comment.' ;;
  esac
done
exit 0
