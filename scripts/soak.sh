#!/usr/bin/env bash
# Runs simulated clusters (test/sim) through random faults for hours, each with a
# new seed. What a failing run leaves is kept: its seed and what was wrong, the
# schedule, the history with drawings, and the servers' logs.
#
# usage: scripts/soak.sh
#
# SOAK       for how long (1h)
# COORD_SEED the first seed; a new one without it. A run that fails prints the
#            command that repeats it
# KEEP       the directory for failing runs (soak)
# GO         the go command (go)
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
SOAK=${SOAK:-1h}
KEEP=${KEEP:-$PWD/soak}
mkdir -p "$KEEP"
KEEP=$(cd "$KEEP" && pwd) # the tests run elsewhere
echo "== simulated clusters for $SOAK; what fails is kept in $KEEP" >&2
exec "$GO" test ./test/sim -count=1 -timeout 0 -v -run '^TestRandomSchedules$' \
  -soak "$SOAK" -keep "$KEEP"
