# The settings of the demo's stack, which leave a real one alone; sourced before
# env.sh. Its port, state and allowlist are its own, and so are its addresses. Of
# the caller's settings and keys, which a real stack may have, it takes none but what
# is about this machine, and what is named for it.
# shellcheck shell=bash
for name in "${!SALLYPORT_@}"; do
  case $name in
  SALLYPORT_DEMO_* | SALLYPORT_TAG | SALLYPORT_SOCKET | SALLYPORT_BASE | SALLYPORT_REFRESH | SALLYPORT_EXTRA_CA) ;;
  *) unset "$name" ;;
  esac
done
# The variables of keys, which the files list behind the name of each provider.
while read -r _ names; do
  # shellcheck disable=SC2086 # several
  unset $names
done < <(grep -hv '^#' "$(dirname "${BASH_SOURCE[0]}")"/../executor/agent/{,search-}providers.txt)
unset name names "${!COMPOSE_@}"

export SALLYPORT_STACK=${SALLYPORT_DEMO_STACK:-sallyport-demo}
export SALLYPORT_PORT=${SALLYPORT_DEMO_PORT:-7290}
export SALLYPORT_ALLOWLIST=${SALLYPORT_DEMO_ALLOWLIST:-compose/demo-allowlist.yaml}
export SALLYPORT_COMPOSE_FILES="compose/compose.yaml compose/demo.yaml"
export SALLYPORT_STATE=${SALLYPORT_DEMO_STATE:-} SALLYPORT_ROOT=${SALLYPORT_DEMO_ROOT:-}
