# The settings of the demo's stack, which leave a real one alone; sourced before
# env.sh. Its port, state and allowlist are its own, and so are its addresses.
# shellcheck shell=bash
export SALLYPORT_STACK=${SALLYPORT_DEMO_STACK:-sallyport-demo}
export SALLYPORT_PORT=${SALLYPORT_DEMO_PORT:-7290}
export SALLYPORT_ALLOWLIST=${SALLYPORT_DEMO_ALLOWLIST:-compose/demo-allowlist.yaml}
export SALLYPORT_COMPOSE_FILES="compose/compose.yaml compose/demo.yaml"
export SALLYPORT_STATE=${SALLYPORT_DEMO_STATE:-} SALLYPORT_ROOT=${SALLYPORT_DEMO_ROOT:-}
export SALLYPORT_ADDR=http://127.0.0.1:$SALLYPORT_PORT
unset SALLYPORT_RESOLVERS SALLYPORT_TOKEN SALLYPORT_TOKEN_FILE
