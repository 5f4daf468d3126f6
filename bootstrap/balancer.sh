#!/bin/sh
# Keeps this node's balancer told of the API servers.
#
#   balancer.sh start PORT     has the node use the balancer
#   balancer.sh follow PORT    tells it of API servers that come and go
set -eu

dir=/etc/nova/api-balancer
kubeconfig=/etc/kubernetes/kubelet.conf
manifests=/etc/kubernetes/manifests
authority=/etc/kubernetes/pki/ca.crt
certificate=/var/lib/kubelet/pki/kubelet-client-current.pem
slices=/apis/discovery.k8s.io/v1/namespaces/default/endpointslices
verb=$1
port=$2
# What is waited for, in seconds.
patience=900
pause=5

# ask reads a path of the API server through the balancer, with the kubelet's
# certificate. The server's own is good for the name kubernetes.
ask() {
  if command -v kubectl >/dev/null; then
    kubectl --kubeconfig "$kubeconfig" --server "https://127.0.0.1:$port" --tls-server-name kubernetes get --raw "$1"
  else
    curl --silent --fail --no-buffer --noproxy '*' --cacert "$authority" --cert "$certificate" --connect-to "kubernetes:$port:127.0.0.1:$port" "https://kubernetes:$port$1"
  fi
}

# tell writes the balancer's configuration for these API servers, unless they
# are the ones that it knows. The pod notices that it changed.
tell() {
  cp "$dir/haproxy.base" "$dir/haproxy.new"
  n=0
  for server; do
    n=$((n + 1))
    printf '  server api-%s %s\n' "$n" "$server" >>"$dir/haproxy.new"
  done
  if [ -e "$dir/haproxy.cfg" ] && [ "$(cat "$dir/haproxy.new")" = "$(cat "$dir/haproxy.cfg")" ]; then
    rm -f "$dir/haproxy.new"
    return 0
  fi
  echo "API servers: ${*:-only the endpoint}"
  # In one piece, and readable for the pod's user.
  chmod 0644 "$dir/haproxy.new"
  mv "$dir/haproxy.new" "$dir/haproxy.cfg"
}

# take reads the API servers from an event. One without any is not believed.
take() {
  case $1 in
  *'"type":"ADDED"'* | *'"type":"MODIFIED"'*) ;;
  *) return 0 ;;
  esac
  target=$(printf '%s' "$1" | grep -o '"port":[0-9]*' | head -n 1 | cut -d : -f 2)
  set -- $(printf '%s' "$1" | grep -o '"addresses":\["[^"]*"' | cut -d '"' -f 4 | sort -u)
  [ -n "$target" ] && [ $# -gt 0 ] || return 0
  servers=
  for address; do
    case $address in
    *:*) servers="$servers [$address]:$target" ;;
    *) servers="$servers $address:$target" ;;
    esac
  done
  # shellcheck disable=SC2086 # a list of words
  tell $servers
}

# follow reads events for as long as there is a balancer.
follow() {
  while :; do
    ask "$slices?watch=true&timeoutSeconds=240&fieldSelector=metadata.name=kubernetes" | while read -r event; do
      take "$event"
    done || true
    sleep "$pause"
  done
}

# start starts the balancer, waits until it works, and only then has the
# kubelet use it.
start() {
  [ -e "$dir/haproxy.cfg" ] || tell
  mkdir -p "$manifests"
  cp "$dir/pod.yaml" "$manifests/.nova-api-balancer.new"
  mv "$manifests/.nova-api-balancer.new" "$manifests/nova-api-balancer.yaml"
  left=$patience
  until ask /readyz >/dev/null 2>&1; do
    left=$((left - 1))
    if [ "$left" -le 0 ]; then
      echo "no API server answers through the balancer on 127.0.0.1:$port" >&2
      return 1
    fi
    sleep 1
  done
  if ! grep -q "server: https://127.0.0.1:$port\$" "$kubeconfig"; then
    (umask 077 && sed "s|^\( *\)server: .*|\1server: https://127.0.0.1:$port\n\1tls-server-name: kubernetes|" "$kubeconfig" >"$kubeconfig.new")
    mv "$kubeconfig.new" "$kubeconfig"
    systemctl restart kubelet
  fi
  systemctl enable --now nova-api-balancer.service
}

"$verb"
