#!/usr/bin/env bash
# The long runs, whose figures stand in docs/reliability.md: tests/fuzz/long.sh RECORD [SECONDS]
#
# Notes in the file RECORD what has run, so that another call continues there.  A call stops after about SECONDS, by
# default when all is done, in some hours.  The parts take turns, one process at a time and at the lowest priority.
# PYTHON, by default .venv/bin/python, has the packages of mmort[test]; the part `bridge` needs clang, and is left out
# without it.  TMPDIR=/dev/shm spares the disk, with which outputs are synchronized.
set -uo pipefail
cd "$(dirname "$0")/../.."
readonly RECORD=$(realpath "${1:?usage: tests/fuzz/long.sh RECORD [SECONDS]}") SECONDS_MAX=${2:-1000000}
readonly PYTHON=${PYTHON:-.venv/bin/python} SLICE=$((SECONDS_MAX < 9000 ? SECONDS_MAX / 15 : 600))
failed=""

# Run a part for a slice of the time.
part() {
    local name=$1
    shift
    nice -n 19 "$PYTHON" -m "tests.fuzz.$name" "$@" --record "$RECORD" || failed="$failed $name"
}

while [ "$SECONDS" -lt "$SECONDS_MAX" ] && [ -z "$failed" ]; do
    before=$(wc -c <"$RECORD" 2>/dev/null || echo 0)
    part agreement --count 20000 --seconds $((4 * SLICE))
    part models --count 100000 --seconds $((3 * SLICE))
    part arrays --count 100000 --seconds "$SLICE"
    part tensors --count 20000 --seconds "$SLICE"
    part images --count 20000 --seconds $((SLICE / 4))
    part videos --count 10000 --seconds $((SLICE / 4))
    part configs --count 10000 --seconds "$SLICE"
    part checkpoints --count 10000 --seconds "$SLICE"
    for name in archives metadata model_bytes texts datasets outputs records graphs foreign_files layouts options devices rewrites signals exports; do
        part "$name" --count 10000 --seconds "$SLICE"
    done
    part threads --seconds 600
    part growth --count 1000000 --seconds $((4 * SLICE))
    part allocations --count 500
    if command -v "${CLANG:-clang}" >/dev/null; then
        for program in allocations fuzz threads; do
            nice -n 19 "$PYTHON" -m tests.fuzz.bridge "$program" --seconds "$SLICE" || failed="$failed bridge $program"
        done
    fi
    [ "$(wc -c <"$RECORD")" -gt "$before" ] || break # nothing was left to do
done
"$PYTHON" -m tests.fuzz.record "$RECORD"
[ -z "$failed" ] || {
    echo "failed:$failed" >&2
    exit 1
}
