# What scripts/up puts into the state directory; sourced after env.sh.
# shellcheck shell=bash

# place FILE NAME puts a copy of the file into the state directory. The copy takes
# the place of the one before whole, so that who reads it finds the one or the other.
place() {
  local to=$SALLYPORT_STATE/$2 new
  [ "$1" -ef "$to" ] && return
  new=$(dirname "$to")/.$(basename "$to").new
  install -m 0644 "$1" "$new"
  mv "$new" "$to"
}

# close_keys takes from other users of this machine what they may do with the
# operator's file, for it holds keys.
close_keys() {
  local file=$SALLYPORT_STATE/executor.env
  if [ -e "$file" ] && (($((8#$(stat -Lc %a "$file"))) & 7)); then
    chmod o= "$file" || die "every user of this machine may read or change $file, which holds keys: chmod 0600 it"
    say "every user of this machine could read or change $file; only its owner and group can now. Renew the keys in it unless you trust them all"
  fi
}

# close_root makes the directory of callers' workspaces, for its owner alone: what an
# agent leaves there with a set-user-ID bit makes whoever runs it the agent's user until
# the run ends. One that is there stays as it is.
close_root() {
  if [ ! -d "$SALLYPORT_ROOT" ]; then
    install -d -m 0700 "$SALLYPORT_ROOT"
  elif (($((8#$(stat -Lc %a "$SALLYPORT_ROOT"))) & 1)); then
    say "every user of this machine can enter $SALLYPORT_ROOT, where agents leave files: chmod o= it unless they must"
  fi
}

# put_token writes down the token that gives access to the API, where the command
# line looks for it, for the caller's eyes only: the one that is set, else that of
# before, else one that is made now.
put_token() {
  local token file=$SALLYPORT_STATE/token
  token=$(operators SALLYPORT_TOKEN)
  if [ -n "$token" ]; then
    [[ ${#token} -ge 16 && $token != *[[:space:]]* ]] || die "SALLYPORT_TOKEN must have at least 16 characters, and no blanks"
  elif [ -s "$file" ]; then
    return
  else
    token=$(head -c 32 /dev/urandom | sha256sum | cut -d' ' -f1)
  fi
  (umask 077 && printf '%s\n' "$token" >"$file.new")
  mv "$file.new" "$file"
}

# prepare_state makes the directory and what a stack needs in it.
prepare_state() {
  [ -d "$SALLYPORT_STATE" ] || install -d -m 0711 "$SALLYPORT_STATE"
  close_root
  close_keys
  put_token
  [ -z "${SALLYPORT_EXTRA_CA:-}" ] || place "$SALLYPORT_EXTRA_CA" extra-ca.pem
  # The gate reads a copy, so that it is given no directory of the operator's. One
  # that runs reloads it.
  install -d -m 0755 "$SALLYPORT_STATE/gate"
  place "$SALLYPORT_ALLOWLIST" gate/allowlist.yaml
}
