# The settings and functions that all scripts share; sourced, never run.
# Every setting may come from the environment instead.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "sallyport: $*" >&2
  exit 1
}

say() { echo "sallyport: $*" >&2; }

# engine_socket prints the socket of the engine that docker(1) uses, which the
# executor is given.
engine_socket() {
  local host=${DOCKER_HOST:-}
  [ -n "$host" ] || host=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null) ||
    host=unix:///var/run/docker.sock
  [[ $host == unix://* ]] || die "the engine is $host: the stack needs one on this machine, reached by unix://"
  echo "${host#unix://}"
}

# operators NAME prints a setting of the executor's: that of the environment, else
# that of the operator's file, where it may stand in quotes.
operators() {
  local file=$SALLYPORT_STATE/executor.env
  if [ -n "${!1+set}" ]; then
    echo "${!1}"
  elif [ -r "$file" ]; then
    sed -nE "s/^[[:space:]]*(export[[:space:]]+)?$1[[:space:]]*=[[:space:]]*//p" "$file" | tail -n 1 |
      sed -E "s/^'([^']*)'.*/\\1/; t; s/^\"([^\"]*)\".*/\\1/; t; s/[[:space:]]+#.*//; s/[[:space:]]+$//"
  fi
}

export SALLYPORT_STACK=${SALLYPORT_STACK:-sallyport}
if [ "$(id -u)" = 0 ]; then
  state_home=/var/lib
else
  state_home=${XDG_STATE_HOME:-$HOME/.local/state}
fi
# Paths are given to the engine, which knows no directory that they could start from.
SALLYPORT_STATE=$(realpath -ms "${SALLYPORT_STATE:-$state_home/$SALLYPORT_STACK}")
SALLYPORT_ROOT=$(realpath -ms "${SALLYPORT_ROOT:-$SALLYPORT_STATE/root}")
SALLYPORT_ALLOWLIST=$(realpath "${SALLYPORT_ALLOWLIST:-allowlist.yaml}")
SALLYPORT_SOCKET=${SALLYPORT_SOCKET:-$(engine_socket)}
export SALLYPORT_STATE SALLYPORT_ROOT SALLYPORT_ALLOWLIST SALLYPORT_SOCKET
export SALLYPORT_TAG=${SALLYPORT_TAG:-dev}
export SALLYPORT_PORT=${SALLYPORT_PORT:-7280}
SALLYPORT_EXTRA_CA=$(operators SALLYPORT_EXTRA_CA)
[ -z "$SALLYPORT_EXTRA_CA" ] || SALLYPORT_EXTRA_CA=$(realpath -ms "$SALLYPORT_EXTRA_CA")
export SALLYPORT_EXTRA_CA

# The image that ours are built on; see scripts/setup.
# shellcheck disable=SC2034 # the scripts that source this use it
base_image=sallyport/base:bookworm

# compose runs Docker Compose on the stack: the engine's own plugin where it is
# recent enough, else the one that scripts/setup built.
compose() {
  local program=(docker compose) files=() file
  [ ! -x bin/docker-compose ] || program=(bin/docker-compose)
  for file in ${SALLYPORT_COMPOSE_FILES:-compose/compose.yaml}; do
    files+=(-f "$file")
  done
  # What compose.yaml passes on by name may come from the operator's file, too.
  [ ! -r "$SALLYPORT_STATE/executor.env" ] || files+=(--env-file "$SALLYPORT_STATE/executor.env")
  "${program[@]}" -p "$SALLYPORT_STACK" "${files[@]}" "$@"
}
