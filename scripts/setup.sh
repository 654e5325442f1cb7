#!/usr/bin/env bash
# Installs the system packages that parts of the project need, where apt-get and
# the rights to use it are at hand. Anywhere else it says what is missing and
# goes on: nothing here is needed to build and run coordd.
#
# usage: scripts/setup.sh [test] [proto] [bench]     (default: test proto)
#   test    PostgreSQL, for the tests of fencing and the demonstration;
#           MariaDB, for the tests of fencing (only its programs: the packages
#           named here bring no service that would be started);
#           iproute2, for tests with networks of their own
#   proto   protoc, to generate code after a change of a .proto file
#   bench   ZooKeeper and curl, to measure beside it
#
# It may be run again at any time and is silent when there is nothing to do.
# With CI=true it fails if something is still missing at the end.
set -uo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

have_postgres() {
  local bin
  have initdb && have postgres && return
  for bin in /usr/lib/postgresql/*/bin; do
    [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ] && return
  done
  return 1
}

have_mariadb() {
  { have mariadbd || [ -x /usr/sbin/mariadbd ]; } && have mariadb-install-db && have my_print_defaults
}

have_ip() { have ip || [ -x /usr/sbin/ip ] || [ -x /sbin/ip ]; }

have_protos() { [ -f /usr/include/google/protobuf/timestamp.proto ] || [ -f /usr/local/include/google/protobuf/timestamp.proto ]; }

have_zookeeper() { [ -f /usr/share/java/zookeeper.jar ] && have java; }

# want CHECK PACKAGE...: notes the packages if the check fails.
missing=()
want() {
  local check=$1
  shift
  "$check" || missing+=("$@")
}

have_protoc() { have protoc; }
have_curl() { have curl; }

look() {
  local group
  missing=()
  for group in "$@"; do
    case $group in
      test)
        want have_postgres postgresql
        want have_mariadb mariadb-server-core mariadb-client-core
        [ "$(uname -s)" != Linux ] || want have_ip iproute2
        ;;
      proto)
        want have_protoc protobuf-compiler
        want have_protos libprotobuf-dev
        ;;
      bench)
        want have_zookeeper zookeeper zookeeper-bin
        want have_curl curl
        ;;
      *)
        echo "usage: $0 [test] [proto] [bench]" >&2
        exit 2
        ;;
    esac
  done
}

# The index may be old or empty, so a failed installation is tried again with a
# new one.
install() {
  local options=(-y -qq --no-install-recommends)
  export DEBIAN_FRONTEND=noninteractive
  apt-get install "${options[@]}" "$@" >/dev/null 2>&1 && return
  apt-get update -qq >/dev/null && apt-get install "${options[@]}" "$@" >/dev/null
}

[ $# -gt 0 ] || set -- test proto
look "$@"
[ "${#missing[@]}" -gt 0 ] || exit 0

if have apt-get && [ "$(id -u)" = 0 ]; then
  echo "setup: installing ${missing[*]}" >&2
  install "${missing[@]}" || echo "setup: apt-get failed" >&2
  look "$@"
  [ "${#missing[@]}" -gt 0 ] || exit 0
fi

if have apt-get; then
  echo "setup: missing, install them with: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
else
  echo "setup: missing (names of Debian's packages): ${missing[*]}" >&2
fi
echo "setup: tests that need them will be skipped and say so" >&2
[ "${CI:-}" != true ]
