package bootstrap

import (
	_ "embed"
	"fmt"
	"net/netip"
	"path"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// nobodyUID is the unprivileged user that runs the load balancer. It
	// needs no permissions.
	nobodyUID = 65534
)

// balancerRBAC lets nodes read the addresses of the API servers.
//
//go:embed balancer-rbac.yaml
var balancerRBAC string

// addBalancer gives a worker its own load balancer for the API servers. A
// control plane machine grants the permissions for it, so that a rollout adds
// load balancers to a cluster that was created without them.
func addBalancer(in *Input, config *nodeconfig.Config) error {
	if in.Platform.APIServerLoadBalancer == nil {
		return nil
	}
	port := int(bindPort(in))
	if in.Mode.controlPlane() {
		config.Join.Manifests = append(config.Join.Manifests, balancerRBAC)
		// kube-proxy uses the local port: the load balancer on a worker, the API
		// server itself on a control plane machine. A cluster that was created
		// without load balancers keeps its kube-proxy, since its workers have
		// none, and so may the workers of a restored cluster.
		if in.Mode == Init && in.Restore == nil {
			config.Join.KubeProxyPort = port
		}
		return nil
	}
	pod, err := balancerPod(in, port)
	if err != nil {
		return err
	}
	config.Join.BalancerPort = port
	config.Machine.Files = append(config.Machine.Files,
		newFile(path.Join(nodeconfig.BalancerDir, "haproxy.base"), "0644", []byte(balancerConfig(in.Endpoint, port))),
		newFile(path.Join(nodeconfig.BalancerDir, "pod.yaml"), "0600", pod))
	return nil
}

// balancerConfig returns HAProxy's configuration; the agent adds a line for
// each API server. Without API servers the endpoint of the cluster is used: on
// the first boot, and for a node that was off while all API servers were
// replaced.
//
// An API server that does not respond is detected within 16 s, and its
// connections are closed: a kubelet would keep them for 45 s, which together
// with the detection is longer than a node stays ready. More frequent checks
// would load API servers: each check is a TLS handshake from each worker.
func balancerConfig(endpoint Endpoint, port int) string {
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
  bind 127.0.0.1:%d
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

func balancerPod(in *Input, port int) ([]byte, error) {
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
				"env":             []any{map[string]any{"name": "CONFIG", "value": nodeconfig.BalancerDir + "/haproxy.cfg"}},
				"resources":       map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}},
				"livenessProbe": map[string]any{
					"tcpSocket": map[string]any{"host": "127.0.0.1", "port": port}, "initialDelaySeconds": 10, "failureThreshold": 6,
				},
				"securityContext": map[string]any{
					"runAsUser": nobodyUID, "runAsGroup": nobodyUID, "runAsNonRoot": true, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
					"capabilities": map[string]any{"drop": []any{"ALL"}},
				},
				"volumeMounts": []any{map[string]any{"name": "config", "mountPath": nodeconfig.BalancerDir, "readOnly": true}},
			}},
			"volumes": []any{map[string]any{"name": "config", "hostPath": map[string]any{"path": nodeconfig.BalancerDir, "type": "Directory"}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing API balancer: %w", err)
	}
	return pod, nil
}
