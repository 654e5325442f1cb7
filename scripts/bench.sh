#!/usr/bin/env bash
# Runs the benchmarks of the packages and of whole clusters, then measures a
# cluster of three servers with coordctl bench and keeps the results as JSON lines.
#
# usage: scripts/bench.sh [packages] [whole] [cluster]     (default: all)
#
# BENCH_DIR   where data, logs and results go; on a real disk, because every
#             write is forced to it (a new directory beside bin/)
# BENCH_PORT  first port of the cluster (7720)
# BENCH_TIME  how long each point is measured (5s)
# GO          the go command (go)
#
# Measure on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
BENCH_PORT=${BENCH_PORT:-7720}
BENCH_TIME=${BENCH_TIME:-5s}
BENCH_DIR=${BENCH_DIR:-$PWD/bin/bench-$(date +%Y%m%d-%H%M%S)}

# clients x requests in flight for each
readonly points='1x1 16x1 128x1 64x64'
readonly endpoints=127.0.0.1:$BENCH_PORT,127.0.0.1:$((BENCH_PORT + 10)),127.0.0.1:$((BENCH_PORT + 20))

packages() {
  "$GO" list ./... | grep -v '/test$' |
    xargs "$GO" test -run '^$' -bench . -benchmem -count 1 | grep -v 'no test files' | tee "$BENCH_DIR/packages.txt"
}

# whole: a million znodes, the loss of a leader, lone writes, the lock's handover,
# on clusters of processes that the benchmarks start themselves.
whole() {
  "$GO" test -run '^$' -bench . -benchtime 1x -timeout 30m ./test | tee "$BENCH_DIR/whole.txt"
}

cluster_pid=
stop_cluster() {
  [ -n "$cluster_pid" ] || return 0
  kill "$cluster_pid" 2>/dev/null || true
  wait "$cluster_pid" || true
  cluster_pid=
}

start_cluster() {
  bin/coordd dev --nodes 3 --port "$BENCH_PORT" --data-dir "$BENCH_DIR/data" >"$BENCH_DIR/dev.log" 2>&1 </dev/null &
  cluster_pid=$!
  trap stop_cluster EXIT
  local try
  for try in $(seq 60); do
    bin/coordctl -e "$endpoints" wait ready >/dev/null 2>&1 && return
    kill -0 "$cluster_pid" 2>/dev/null || break
    sleep 1
  done
  echo "bench: the cluster does not become ready:" >&2
  cat "$BENCH_DIR/dev.log" >&2
  return 1
}

# measure WORKLOAD CLIENTS DEPTH [FLAGS]: one point, as a line in the results.
measure() {
  local workload=$1 clients=$2 depth=$3
  shift 3
  bin/coordctl -e "$endpoints" bench "$workload" --clients "$clients" --depth "$depth" --duration "$BENCH_TIME" --output json "$@" |
    tee -a "$BENCH_DIR/results.jsonl"
}

cluster() {
  local point
  start_cluster
  for point in $points; do
    measure set "${point%x*}" "${point#*x}"
    measure get "${point%x*}" "${point#*x}" --read-mode session # what ZooKeeper's get is
    measure get "${point%x*}" "${point#*x}" --read-mode linearizable
  done
  measure create 16 1
  measure mixed 64 64
  measure lock 16 1
  stop_cluster
}

[ $# -gt 0 ] || set -- packages whole cluster
mkdir -p "$BENCH_DIR"
for part in "$@"; do
  case $part in
    packages | whole | cluster) "$part" ;;
    *)
      echo "usage: $0 [packages] [whole] [cluster]" >&2
      exit 2
      ;;
  esac
done
echo "bench: results are in $BENCH_DIR" >&2
