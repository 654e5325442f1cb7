#!/usr/bin/env bash
# Installs the pinned tools of the project into bin/, those that are not there
# in that version yet. It changes neither go.mod nor anything outside bin/.
#
# usage: scripts/tools.sh [NAME...]     (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
export GOBIN=$PWD/bin

readonly tools='
gofumpt             mvdan.cc/gofumpt                                        v0.12.0
staticcheck         honnef.co/go/tools/cmd/staticcheck                      v0.8.2
golangci-lint       github.com/golangci/golangci-lint/v2/cmd/golangci-lint  v2.15.0
protoc-gen-go       google.golang.org/protobuf/cmd/protoc-gen-go            v1.36.12
protoc-gen-go-grpc  google.golang.org/grpc/cmd/protoc-gen-go-grpc           v1.6.2
'

# current NAME VERSION: is this version in bin/? A binary knows its module.
current() {
  [ -x "bin/$1" ] && "$GO" version -m "bin/$1" 2>/dev/null |
    awk -v v="$2" '$1 == "mod" && $3 == v { found = 1 } END { exit !found }'
}

wanted() {
  [ "${#names[@]}" -gt 0 ] || return 0
  local name
  for name in "${names[@]}"; do [ "$name" = "$1" ] && return; done
  return 1
}

names=("$@")
while read -r name path version; do
  [ -n "$name" ] && wanted "$name" || continue
  current "$name" "$version" && continue
  echo "tools: building $name $version" >&2
  "$GO" install "$path@$version"
done <<<"$tools"
