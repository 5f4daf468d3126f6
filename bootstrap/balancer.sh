#!/bin/sh
# Updates the list of API servers in this node's load balancer.
#
#   balancer.sh start PORT     starts the load balancer and makes the node use it
#   balancer.sh follow PORT    follows changes of the API servers
set -eu

dir=/etc/nova/api-balancer
kubeconfig=/etc/kubernetes/kubelet.conf
manifests=/etc/kubernetes/manifests
authority=/etc/kubernetes/pki/ca.crt
certificate=/var/lib/kubelet/pki/kubelet-client-current.pem
slices=/apis/discovery.k8s.io/v1/namespaces/default/endpointslices
verb=$1
port=$2
# Timeouts, in seconds.
timeout=900
pause=5

# api_get requests a path of the API server through the load balancer, with the
# kubelet's certificate. The server's certificate is valid for the name
# kubernetes.
api_get() {
  if command -v kubectl >/dev/null; then
    kubectl --kubeconfig "$kubeconfig" --server "https://127.0.0.1:$port" --tls-server-name kubernetes get --raw "$1"
  else
    curl --silent --fail --no-buffer --noproxy '*' --cacert "$authority" --cert "$certificate" --connect-to "kubernetes:$port:127.0.0.1:$port" "https://kubernetes:$port$1"
  fi
}

# write_config writes the load balancer's configuration for these API servers,
# unless it lists them already. The pod detects the change.
write_config() {
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
  # Atomic, and readable for the user of the pod.
  chmod 0644 "$dir/haproxy.new"
  mv "$dir/haproxy.new" "$dir/haproxy.cfg"
}

# read_event reads the API servers from an event. An event without API servers
# is ignored.
read_event() {
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
  write_config $servers
}

# follow reads events until the script is stopped.
follow() {
  while :; do
    api_get "$slices?watch=true&timeoutSeconds=240&fieldSelector=metadata.name=kubernetes" | while read -r event; do
      read_event "$event"
    done || true
    sleep "$pause"
  done
}

# start starts the load balancer, waits until it works, and only then configures
# the kubelet to use it.
start() {
  [ -e "$dir/haproxy.cfg" ] || write_config
  mkdir -p "$manifests"
  cp "$dir/pod.yaml" "$manifests/.nova-api-balancer.new"
  mv "$manifests/.nova-api-balancer.new" "$manifests/nova-api-balancer.yaml"
  left=$timeout
  until api_get /readyz >/dev/null 2>&1; do
    left=$((left - 1))
    if [ "$left" -le 0 ]; then
      echo "no API server responds through the load balancer on 127.0.0.1:$port" >&2
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
