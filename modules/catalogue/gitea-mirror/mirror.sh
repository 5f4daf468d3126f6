#!/bin/sh
# mirror.sh fills Gitea with a mirror of the release repository, and creates the
# account that may read it. Gitea stores nothing: after each of its starts all of
# this is missing. It copies the repository again at each of its own starts, because
# Gitea cannot change the address or the password of a mirror, and a change of its
# Secret restarts this pod. With the argument "once" it tries once.
set -eu

work="$(mktemp -d)"
filled="$work/filled"
[ -z "$STATE" ] || filled="$STATE/filled"
copied="$work/copied"
rm -f "$filled"

# As the first process of a container, a shell ignores signals that it does not
# handle, and it handles them only while it waits.
child=''
trap '[ -z "$child" ] || kill "$child" 2>/dev/null || :; exit 0' TERM INT

# text prints a string of JSON, and of curl's configuration.
text() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# call METHOD PATH BODY sends a request as the administrator, and prints the status.
# The credentials are not arguments, which other processes can read.
call() {
  printf 'user = %s\n' "$(text "$ADMIN_USERNAME:$ADMIN_PASSWORD")" >"$work/curl"
  printf %s "$3" | curl --config "$work/curl" --silent --show-error --max-time 900 --request "$1" \
    --header 'Content-Type: application/json' --data-binary @- \
    --output "$work/answer" --write-out '%{http_code}' "$GITEA_ADDRESS/api/v1$2"
}

# want STATUS METHOD PATH BODY sends a request that has to have this status.
want() {
  got="$(call "$2" "$3" "$4")" || return 1
  [ "$got" = "$1" ] && return 0
  echo "$2 $3: Gitea returned the status $got, not $1" >&2
  return 1
}

# exists PATH returns 0 if there is an object, 1 if there is none, and else 2.
exists() {
  got="$(call GET "$1" '')" || return 2
  case "$got" in
  200) return 0 ;;
  404) return 1 ;;
  esac
  echo "GET $1: Gitea returned the status $got" >&2
  return 2
}

# missing PATH METHOD PATH BODY creates an object if it does not exist.
missing() {
  code=0
  exists "$1" || code=$?
  case "$code" in
  0) return 0 ;;
  1) want 201 "$2" "$3" "$4" ;;
  *) return 1 ;;
  esac
}

# delete PATH deletes an object, if it exists.
delete() {
  got="$(call DELETE "$1" '')" || return 1
  case "$got" in
  204 | 404) return 0 ;;
  esac
  echo "DELETE $1: Gitea returned the status $got" >&2
  return 1
}

# readable requests the references of the release repository, as Git does. Redirects are
# followed, without the credentials if they lead to another host.
readable() {
  {
    printf 'url = %s\n' "$(text "$(printf %s "$SOURCE_URL" | sed 's|/*$||')/info/refs?service=git-upload-pack")"
    [ -z "$SOURCE_USERNAME$SOURCE_PASSWORD" ] || printf 'user = %s\n' "$(text "$SOURCE_USERNAME:$SOURCE_PASSWORD")"
  } >"$work/source"
  got="$(curl --config "$work/source" --silent --show-error --proto =http,https --location --max-redirs 5 --globoff \
    --max-time 60 --output /dev/null --write-out '%{http_code}')" || return 1
  [ "$got" = 200 ] && return 0
  echo "reading the release repository: its server returned the status $got, not 200" >&2
  return 1
}

# renew deletes the copy, once its source can be read.
renew() {
  readable && delete /repos/nova/release
}

fill() {
  user="$(text "$FLUX_USERNAME")"
  password="$(text "$FLUX_PASSWORD")"
  missing "/users/$FLUX_USERNAME" POST /admin/users \
    "{\"username\":$user,\"email\":$(text "$FLUX_USERNAME@nova.invalid"),\"password\":$password,\"must_change_password\":false,\"visibility\":\"private\"}" || return 1
  # The password may have changed.
  want 200 PATCH "/admin/users/$FLUX_USERNAME" "{\"login_name\":$user,\"source_id\":0,\"password\":$password,\"must_change_password\":false}" || return 1
  missing /orgs/nova POST /orgs '{"username":"nova","visibility":"private"}' || return 1
  [ -e "$copied" ] || renew || return 1
  missing /repos/nova/release POST /repos/migrate \
    "{\"service\":\"git\",\"clone_addr\":$(text "$SOURCE_URL"),\"auth_username\":$(text "$SOURCE_USERNAME"),\"auth_password\":$(text "$SOURCE_PASSWORD"),\"repo_owner\":\"nova\",\"repo_name\":\"release\",\"mirror\":true,\"mirror_interval\":\"10m0s\",\"private\":true}" || return 1
  touch "$copied"
  want 204 PUT "/repos/nova/release/collaborators/$FLUX_USERNAME" '{"permission":"read"}'
}

while :; do
  fill &
  child=$!
  if wait "$child"; then
    touch "$filled"
    [ "$#" -eq 0 ] || exit 0
  else
    rm -f "$filled"
    [ "$#" -eq 0 ] || exit 1
  fi
  sleep "${INTERVAL:-30}" &
  child=$!
  wait "$child"
done
