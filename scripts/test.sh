#!/usr/bin/env bash
# Runs the tests and prints a line for each package, the output of failures, the
# reason of each skip, and at the end "N passed, N failed, N skipped".
#
# usage: scripts/test.sh quick     gofmt, vet and the short tests
#        scripts/test.sh all       everything: also the whole-cluster tests, every
#                                  fuzz target for FUZZTIME, and the race detector
#        scripts/test.sh fuzz      only the fuzz targets
#        scripts/test.sh race      all tests under the race detector
#
# With CI=true a skipped test is a failure, and chance (COORD_SEED) follows from the
# files of the commit: a run that failed can be made again, and each change of the
# files tries something else.
#
# FUZZTIME   how long each fuzz target runs (30s)
# COORD_SEED the seed of all tests with chance in them (each draws its own)
# GO         the go command (go)
set -uo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
FUZZTIME=${FUZZTIME:-30s}
# Fuzz targets at a time: one worker each on the smallest machine we test on.
fuzz_jobs=2

# Packages whose tests live in simulated time: they need a processor, whenever. As
# they step back for all others, their limit is long.
readonly simulated='/test/(sim|planted)(/|$)'
# Packages whose tests start clusters of real processes, one package at a time.
# Beside them runs only what steps back for them (nice), because they measure how
# long things take.
readonly whole='/test(/|$)'
# The race detector is for packages with goroutines; the whole-cluster tests
# run programs that were built without it.
readonly no_race='/(test|cmd|scripts|api|zxid|session|watch|wire)(/|$)'
# Those of them that hurt servers and judge what clients saw, and measure nothing:
# others may run beside them.
readonly hurt='/test/(chaos|internal)(/|$)'
# Packages whose tests, but for the examples, live in fake time and are slow under
# the race detector.
readonly fake='/(recipes|internal/recipetest)(/|$)'
# Build tags of test/planted, which puts bugs into the servers.
readonly planted_tag=planted

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# phase NAME [short]: what follows belongs to it.
phase() { printf '{"Action":"phase","Package":"%s","Output":"%s"}\n' "$1" "${2:-}"; }

# Tests that run servers within their own process collect garbage less often than a
# server does: for their small heaps that is a fifth of all work. Not for tests that
# start real servers and look at their memory.
readonly lazy_gc=400

# gotest NAME ARGS...: the events of a go test, and one more if it failed.
gotest() {
  local name=$1
  shift
  "$GO" test -json "$@" || printf '{"Action":"phase-failed","Package":"%s"}\n' "$name"
}

# check NAME COMMAND...: a command as if it were a test. What it prints is shown
# if it fails.
check() {
  local name=$1 verdict=pass
  shift
  if ! "$@" >"$scratch/check" 2>&1; then
    verdict=fail
    cat "$scratch/check"
  fi
  printf '{"Action":"%s","Package":"%s","Test":"%s"}\n' "$verdict" "$name" "$name"
  printf '{"Action":"%s","Package":"%s"}\n' "$verdict" "$name"
}

formatted() {
  local files
  files=$(gofmt -l .) || return 1
  [ -z "$files" ] || { printf 'not formatted (run gofmt -w):\n%s\n' "$files"; return 1; }
}

# packages [-v] PATTERN: the packages of the module that match (-v: do not).
packages() { "$GO" list ./... | grep -E "$@"; }

lint() {
  phase lint
  check gofmt formatted
  check vet "$GO" vet ./...
}

# fuzz_targets prints package, directory and name of each, sorted by name so that
# the targets of one package do not compile it twice at the same time.
fuzz_targets() {
  "$GO" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... |
    while read -r pkg dir; do
      grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed "s|^func \(.*\)|$pkg \1|"
    done | sort -k2,2
}

# fuzz_one PACKAGE TARGET FILE: runs a target with its events in FILE. The go
# command sometimes reports the end of its own time limit as a failure; such a
# run, which names no failing input, is repeated once.
fuzz_one() {
  local try
  for try in 1 2; do
    "$GO" test -json -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -parallel 1 "$1" >"$3" && return
    if [ "$try" = 1 ] && grep -q 'context deadline exceeded' "$3" && ! grep -q 'Failing input' "$3"; then
      continue
    fi
    printf '{"Action":"phase-failed","Package":"%s"}\n' "$2" >>"$3"
    return
  done
}

fuzz() {
  phase fuzz
  local pkg target n=0
  while read -r pkg target; do
    n=$((n + 1))
    while [ "$(jobs -rp | wc -l)" -ge "$fuzz_jobs" ]; do wait -n; done
    fuzz_one "$pkg" "$target" "$scratch/fuzz.$n" &
  done < <(fuzz_targets)
  wait
  local i
  for i in $(seq "$n"); do cat "$scratch/fuzz.$i"; done
}

unit() {
  phase unit
  GOGC=$lazy_gc gotest unit -count=1 -timeout 10m $(packages -v "$whole")
}

whole_cluster() {
  phase whole-cluster
  gotest whole-cluster -count=1 -timeout 25m -p 1 $(packages "$whole" | grep -vE "$simulated|$hurt")
}

hurt_clusters() {
  phase hurt-clusters
  gotest hurt-clusters -count=1 -timeout 25m -p 1 $(packages "$hurt")
}

simulated() {
  phase simulated
  GOGC=$lazy_gc gotest simulated -count=1 -timeout 45m -p 1 -tags "$planted_tag" $(packages "$whole" | grep -E "$simulated")
}

# beside NICE FILE COMMAND...: runs parts, one after the other, that step back for
# all others.
beside() {
  renice -n "$1" "$BASHPID" >/dev/null
  local file=$2 part
  shift 2
  for part in "$@"; do timed "$part"; done >"$file"
}

# tests runs those that wait for something most of the time, and in the time that
# they leave those that compute. No processor is ever idle while something is left.
tests() {
  fuzz_jobs=1
  beside 19 "$scratch/fuzz" fuzz &
  local fuzzing=$!
  beside 19 "$scratch/computing" simulated race_fake &
  local computing=$!
  timed unit
  timed whole_cluster
  beside 10 "$scratch/race" race_short &
  local racing=$!
  timed hurt_clusters
  wait "$racing" "$fuzzing" "$computing"
  cat "$scratch/race" "$scratch/computing" "$scratch/fuzz"
}

# can_race: the race detector needs cgo and a C compiler. Where they are missing
# the phase is a skipped test, with the reason.
can_race() {
  [ "$("$GO" env CGO_ENABLED)" = 1 ] && command -v "$("$GO" env CC | cut -d' ' -f1)" >/dev/null && return
  phase race
  printf '{"Action":"output","Package":"race","Test":"race","Output":"the race detector needs a C compiler"}\n'
  printf '{"Action":"skip","Package":"race","Test":"race"}\n'
  return 1
}

# The race detector runs on one processor for each package: in fake time Go 1.26
# uses one state of the detector for all timers of a test, and two processors that
# find timers due at the same time destroy it (SIGSEGV in maybeRunChan, "tsan_rtl.cpp
# CHECK failed"). A race is two accesses that nothing orders; whether they were at
# the same time does not matter to the detector.
race_short() {
  can_race || return 0
  phase race short
  GOGC=$lazy_gc gotest race -race -short -cpu 1 -count=1 -timeout 20m $(packages -v "$no_race|$fake")
}

race_fake() {
  can_race || return 0
  phase race-fake short
  GOGC=$lazy_gc gotest race-fake -race -short -cpu 1 -run '^(Test|Fuzz)' -count=1 -timeout 45m $(packages "$fake")
}

race_all() {
  can_race || return 0
  phase race
  gotest race -race -cpu 1 -count=1 -timeout 60m -p 1 ./...
}

quick() {
  phase quick short
  gotest quick -short -timeout 5m ./...
}

# timed COMMAND: runs a part and says on stderr how long it took.
timed() {
  local began=$SECONDS
  "$@"
  echo "== $1 took $((SECONDS - began)) s" >&2
}

run() {
  case $1 in
    quick) timed lint && timed quick ;;
    all) timed lint && tests ;;
    fuzz) timed fuzz ;;
    race) timed race_all ;;
  esac
}

mode=${1:-}
case $mode in
  quick | all | fuzz | race) ;;
  *)
    echo "usage: $0 quick | all | fuzz | race" >&2
    exit 2
    ;;
esac
"$GO" build -o "$scratch/testsum" ./scripts/testsum || exit 1
strict=false
if [ "${CI:-}" = true ]; then
  strict=true
  if [ -z "${COORD_SEED:-}" ] && tree=$(git rev-parse 'HEAD^{tree}' 2>/dev/null); then
    export COORD_SEED=$((16#${tree:0:10}))
  fi
fi
[ -z "${COORD_SEED:-}" ] || echo "COORD_SEED=$COORD_SEED"
run "$mode" | "$scratch/testsum" "-strict=$strict"
