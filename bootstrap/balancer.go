package bootstrap

import (
	_ "embed"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	balancerDir = novaDir + "/api-balancer"
	// beforeCommands sorts before firstCommand, in any locale.
	beforeCommands = "00"
	// nobodyUID is the unprivileged user that runs the load balancer. It
	// needs no permissions.
	nobodyUID = 65534
)

var (
	// balancerScript updates the API servers in the load balancer.
	//
	//go:embed balancer.sh
	balancerScript []byte
	//go:embed nova-api-balancer.service
	balancerUnit string
	// balancerRBAC lets nodes read the addresses of the API servers.
	//
	//go:embed balancer-rbac.yaml
	balancerRBAC []byte
)

// balancerFiles give a worker its own load balancer for the API servers. On a
// control plane machine they grant the permissions for it.
func balancerFiles(in *Input) ([]writeFile, error) {
	if in.Platform.APIServerLoadBalancer == nil {
		return nil, nil
	}
	port := strconv.Itoa(int(bindPort(in)))
	command := path.Join(runDir, "postKubeadmCommands", beforeCommands)
	if in.Mode.controlPlane() {
		script := admitBalancers
		// A restored cluster may have workers without a load balancer.
		if in.Mode == Init && in.Restore == nil {
			script += strings.ReplaceAll(redirectKubeProxy, "__NOVA_PORT__", port)
		}
		return []writeFile{
			newFile(path.Join(runDir, "api-balancer.yaml"), "0600", balancerRBAC),
			newFile(command, "0600", []byte(script)),
		}, nil
	}
	pod, err := balancerPod(in, port)
	if err != nil {
		return nil, err
	}
	return []writeFile{
		newFile(path.Join(balancerDir, "balancer.sh"), "0755", balancerScript),
		newFile(path.Join(balancerDir, "haproxy.base"), "0644", []byte(balancerConfig(in.Endpoint, port))),
		newFile(path.Join(balancerDir, "pod.yaml"), "0600", pod),
		newFile("/etc/systemd/system/nova-api-balancer.service", "0644", []byte(strings.ReplaceAll(balancerUnit, "__NOVA_PORT__", port))),
		newFile(command, "0600", []byte("sh "+balancerDir+"/balancer.sh start "+port+"\n")),
	}, nil
}

// balancerConfig returns HAProxy's configuration; the script adds a line for
// each API server. Without API servers the endpoint of the cluster is used: on
// the first boot, and for a node that was off while all API servers were
// replaced.
//
// An API server that does not respond is detected within 16 s, and its
// connections are closed: a kubelet would keep them for 45 s, which together
// with the detection is longer than a node stays ready. More frequent checks
// would load API servers: each check is a TLS handshake from each worker.
func balancerConfig(endpoint Endpoint, port string) string {
	resolvers, options := "", ""
	if _, err := netip.ParseAddr(endpoint.Host); err != nil {
		resolvers, options = "resolvers node\n  parse-resolv-conf\n", " resolvers node"
	}
	return fmt.Sprintf(`global
  maxconn 1000
  hard-stop-after 10s
%sdefaults
  mode tcp
  timeout connect 2s
  timeout client 10m
  timeout server 10m
  timeout tunnel 1h
  timeout check 3s
frontend api
  bind 127.0.0.1:%s
  default_backend api
backend api
  balance leastconn
  option redispatch
  option httpchk GET /readyz
  http-check expect ! rstatus ^5
  default-server check check-ssl verify none inter 5s fastinter 1s fall 3 rise 1 on-marked-down shutdown-sessions on-marked-up shutdown-backup-sessions
  server endpoint %s backup init-addr libc,none%s
`, resolvers, port, endpoint, options)
}

// watchConfig runs HAProxy and reloads it when its configuration changes. A
// reload keeps connections.
const watchConfig = `haproxy -W -db -f "$CONFIG" &
main=$!
trap 'kill -TERM "$main"' TERM INT
known=$(cksum <"$CONFIG")
while kill -0 "$main" 2>/dev/null; do
  sleep 1
  now=$(cksum <"$CONFIG")
  [ "$now" = "$known" ] || kill -USR2 "$main"
  known=$now
done
wait "$main"
`

func balancerPod(in *Input, port string) ([]byte, error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("writing API balancer: %w", err)
	}
	pod, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name": "nova-api-balancer", "namespace": "kube-system",
			"labels": map[string]any{"app.kubernetes.io/name": "nova-api-balancer"},
		},
		"spec": map[string]any{
			"hostNetwork":                   true,
			"priorityClassName":             "system-node-critical",
			"terminationGracePeriodSeconds": 5,
			"containers": []any{map[string]any{
				"name":            "haproxy",
				"image":           in.Platform.APIServerLoadBalancer.GetImage(),
				"imagePullPolicy": pullPolicy(in),
				"command":         []any{"sh", "-c", watchConfig},
				"env":             []any{map[string]any{"name": "CONFIG", "value": balancerDir + "/haproxy.cfg"}},
				"resources":       map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}},
				"livenessProbe": map[string]any{
					"tcpSocket": map[string]any{"host": "127.0.0.1", "port": number}, "initialDelaySeconds": 10, "failureThreshold": 6,
				},
				"securityContext": map[string]any{
					"runAsUser": nobodyUID, "runAsGroup": nobodyUID, "runAsNonRoot": true, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
					"capabilities": map[string]any{"drop": []any{"ALL"}},
				},
				"volumeMounts": []any{map[string]any{"name": "config", "mountPath": balancerDir, "readOnly": true}},
			}},
			"volumes": []any{map[string]any{"name": "config", "hostPath": map[string]any{"path": balancerDir, "type": "Directory"}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing API balancer: %w", err)
	}
	return pod, nil
}

// admitBalancers runs on each control plane machine, so that a rollout adds
// load balancers to a cluster that was created without them.
const admitBalancers = `set -e
export KUBECONFIG=/etc/kubernetes/admin.conf
retry() {
  left=60
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || exit 1
    sleep 5
  done
}
retry kubectl apply -f /run/nova/api-balancer.yaml
`

// redirectKubeProxy configures kube-proxy to use the local port: the load
// balancer on a worker, the API server itself on a control plane machine. A
// cluster that was created without load balancers keeps its kube-proxy, since
// its workers have none. The command is idempotent.
const redirectKubeProxy = `redirect_kube_proxy() {
  proxy=$(kubectl -n kube-system get configmap kube-proxy -o yaml --ignore-not-found) || return 1
  [ -n "$proxy" ] || return 0
  printf '%s\n' "$proxy" | sed -e '/^ *tls-server-name: kubernetes$/d' \
    -e 's|^\( *\)server: https:.*|\1server: https://127.0.0.1:__NOVA_PORT__\n\1tls-server-name: kubernetes|' | kubectl replace -f - || return 1
  kubectl -n kube-system rollout restart daemonset kube-proxy
}
retry redirect_kube_proxy
`
