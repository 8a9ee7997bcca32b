#!/bin/sh
# A pull worker in shell: fetches jobs with curl, does them, reports how they ended.  Needs curl and jq.
#
#   JOBS_URL=http://localhost:8000/jobs JOBS_TOKEN=djt_… ./pull_worker.sh QUEUE [JOBS]
#
# Ends after JOBS jobs, if given.  Its work is a checksum: {"text": "abc"} -> {"sha256": "ba78…"}.
set -u
queue=$1
left=${2:--1}

call() { # METHOD PATH BODY -> the answer; tried again while the server is away
    for pause in 0 1 2 4 8 15; do
        sleep "$pause"
        answer=$(curl --silent --show-error --max-time 40 --request "$1" --write-out '\n%{http_code}' \
            --header "Authorization: Bearer $JOBS_TOKEN" --header 'Content-Type: application/json' \
            --data "$3" "$JOBS_URL/$2") || continue
        case ${answer##*"
"} in
        5??) continue ;;
        2??) printf '%s\n' "${answer%"
"*}" && return 0 ;;
        *) printf '%s\n' "$answer" >&2 && return 1 ;;
        esac
    done
    return 1
}

work() { # DATA -> the report, without attempt and token
    text=$(printf '%s' "$1" | jq --exit-status --raw-output 'objects | .text | strings') || {
        echo '{"status": "failed", "retryable": false, "error": "data has no text"}'
        return
    }
    sum=$(printf '%s' "$text" | sha256sum | cut -d ' ' -f 1)
    jq --null-input --compact-output --arg sum "$sum" '{status: "succeeded", result: {sha256: $sum}}'
}

while [ "$left" -ne 0 ]; do
    # One job at a time, waiting up to 10 s for it: whoever is free takes the next.
    job=$(call POST "v1/queues/$queue/claim" '{"limit": 1, "lease": 60, "wait": 10}' | jq --compact-output '.jobs[0] // empty')
    [ -n "$job" ] || continue
    report=$(work "$(printf '%s' "$job" | jq --compact-output .data)")
    body=$(printf '%s' "$job" | jq --compact-output --argjson report "$report" '$report + {attempt, token}')
    call POST "v1/jobs/$(printf '%s' "$job" | jq --raw-output '.name + "/" + .id')" "$body" >/dev/null
    left=$((left - 1))
done
