#!/usr/bin/env bash
# Generates the Go code beside each .proto file, with the pinned plugins in bin/.
# The code is committed, so only who changes a .proto file needs protoc.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v protoc >/dev/null || {
  echo "proto: protoc is missing, run: make setup" >&2
  exit 1
}
scripts/tools.sh protoc-gen-go protoc-gen-go-grpc

git ls-files --cached --others --exclude-standard '*.proto' | xargs -r -n1 dirname | sort -u |
  while read -r dir; do
    protoc -I "$dir" \
      --plugin=protoc-gen-go=bin/protoc-gen-go --plugin=protoc-gen-go-grpc=bin/protoc-gen-go-grpc \
      --go_out="$dir" --go_opt=paths=source_relative \
      --go-grpc_out="$dir" --go-grpc_opt=paths=source_relative \
      "$dir"/*.proto
  done
