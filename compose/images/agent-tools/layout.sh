#!/bin/sh
# Usage: layout.sh DIR, beside node, pi and pi-LICENSE: lays out under DIR, as under
# /usr/local, what of the installed packages the image keeps.
set -eu
out=$1
modules=$out/lib/node_modules
mkdir -p "$out/bin" "$modules/@earendil-works" "$modules/@silvia-odwyer"
cp -R pi/node_modules/@earendil-works/pi-coding-agent "$modules/@earendil-works/"
cp -R pi/node_modules/@silvia-odwyer/photon-node "$modules/@silvia-odwyer/"
cp -R pi/node_modules/quickjs-wasi node/node_modules/npm "$modules/"
find "$modules" -type f \( -name '*.map' -o -name '*.d.ts' \) -delete
rm -rf "$modules/@earendil-works/pi-coding-agent/examples" "$modules/npm/docs" "$modules/npm/man"
cp node/node_modules/node-linux-*/bin/node "$out/bin/node"
install -D -m 0644 node/node_modules/node-linux-*/LICENSE "$out/share/doc/node/LICENSE"
# The package of pi names its licence and brings no copy.
install -m 0644 pi-LICENSE "$modules/@earendil-works/pi-coding-agent/LICENSE"
ln -s ../lib/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js "$out/bin/pi"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$out/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$out/bin/npx"
chmod 755 "$modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
