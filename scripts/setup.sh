#!/usr/bin/env bash
# Installs the system packages that parts of the project need, where apt-get and
# the rights to use it are at hand. Anywhere else it says what is missing and
# goes on: nothing here is needed to build and run coordd.
#
# usage: scripts/setup.sh [test] [proto] [bench]     (default: test proto)
#   test    ZooKeeper and its clients (kazoo, Curator, C, npm's), for the tests of
#           the ZooKeeper port; PostgreSQL, for the tests of fencing and the demonstration;
#           MariaDB, for the tests of fencing (only its programs: the packages
#           named here bring no service that would be started);
#           iproute2, for tests with networks of their own; strace and e2fsprogs,
#           for tests that kill servers at system calls and take disks away
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

have_strace() { have strace; }
have_mkfs() { have mkfs.ext4 || [ -x /usr/sbin/mkfs.ext4 ] || [ -x /sbin/mkfs.ext4 ]; }

have_protos() { [ -f /usr/include/google/protobuf/timestamp.proto ] || [ -f /usr/local/include/google/protobuf/timestamp.proto ]; }

# Clients of the ZooKeeper port: kazoo for Debian's own python, Curator's jars with
# a compiler, the shells of Java and C, and those of the npm registry.
have_kazoo() { /usr/bin/python3 -c 'import kazoo' 2>/dev/null || python3 -c 'import kazoo' 2>/dev/null; }
have_curator() { [ -f /usr/share/java/curator-recipes.jar ] && [ -f /usr/share/java/curator-x-discovery.jar ] && [ -f /usr/share/java/slf4j-nop.jar ]; }
have_javac() { have javac; }
have_shells() { [ -f /usr/share/zookeeper/bin/zkCli.sh ] && [ -x /usr/lib/zookeeper/bin/cli_mt ]; }
have_npm() { have node && have npm; }
have_compiler() { have g++ && have make; }

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
        if [ "$(uname -s)" = Linux ]; then
          want have_ip iproute2
          want have_strace strace
          want have_mkfs e2fsprogs
        fi
        want have_kazoo python3-kazoo
        want have_curator libcurator-recipes-java libcurator-discovery-java libslf4j-java
        want have_javac default-jdk-headless
        want have_shells zookeeper zookeeper-bin
        want have_zookeeper zookeeper default-jre-headless
        want have_npm nodejs npm
        want have_compiler g++ make
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

# npm's clients go into a folder of the tests that git ignores. They are installed
# again when the lock file has changed.
clients=$(dirname "$0")/../test/clients
npm_clients() {
  local lock=$clients/package-lock.json stamp=$clients/node_modules/.installed
  have npm || return
  cmp -s "$lock" "$stamp" && return
  echo "setup: installing npm's ZooKeeper clients" >&2
  (cd "$clients" && npm ci --no-audit --no-fund --loglevel=error >/dev/null) && cp "$lock" "$stamp" ||
    { echo "setup: npm failed" >&2; return 1; }
}

[ $# -gt 0 ] || set -- test proto
look "$@"
if [ "${#missing[@]}" -gt 0 ] && have apt-get && [ "$(id -u)" = 0 ]; then
  echo "setup: installing ${missing[*]}" >&2
  install "${missing[@]}" || echo "setup: apt-get failed" >&2
  look "$@"
fi
npm_ok=true
case " $* " in *" test "*) npm_clients || npm_ok=false ;; esac
[ "${#missing[@]}" -gt 0 ] || ! $npm_ok || exit 0

if [ "${#missing[@]}" -eq 0 ]; then
  :
elif have apt-get; then
  echo "setup: missing, install them with: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
else
  echo "setup: missing (names of Debian's packages): ${missing[*]}" >&2
fi
echo "setup: tests that need them will be skipped and say so" >&2
[ "${CI:-}" != true ]
