#!/bin/sh
# Prints the models that the pi on the PATH knows, one provider/model a line, for
# the providers of providers.txt. No key is real and nothing is sent anywhere. Run
# it after a change of pi's version, with node 22 and that pi on the PATH:
#
#	cd executor/agent && sh list-models.sh > models.txt
#
# or out of the agent image:
#
#	docker run --rm -i -v "$PWD:/in:ro" -w /in --entrypoint sh sallyport/agent:dev list-models.sh > models.txt
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
keys=$(sed '/^#/d; s/^[^ ]* //' providers.txt | tr ' ' '\n' | sort -u | sed 's/$/=none/')
echo "# The models of pi $(pi --version), made by list-models.sh."
# shellcheck disable=SC2086 # one word a variable
env HOME="$home" $keys pi --offline --list-models | awk 'NR > 1 && NF { print $1 "/" $2 }' | LC_ALL=C sort
