package bootstrap

import (
	"fmt"
	"net/netip"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// The durations of kube-vip's lease, in seconds. Candidates check the lease
// every 1 to 2.2 s. If the machine with the endpoint fails, another takes over
// after 4.9 s (median) to 7.8 s (maximum); with kube-vip's defaults of 15, 10
// and 2 it takes 18 s. With shorter durations kube-vip would release the
// address during each short leader election of etcd.
const (
	leaseDuration = "4"
	renewDeadline = "3"
	retryPeriod   = "1"
	// arpRate is the interval of gratuitous ARP, in milliseconds. During a move
	// two machines send it, and the new holder's must arrive soon after the old
	// holder stops; kube-vip's default is 3 s, and this is its minimum.
	arpRate = "500"
)

// addKubeVIP adds the static pod that serves the endpoint. Its interface is known
// only on the machine.
func addKubeVIP(in *Input, config *nodeconfig.Config) error {
	if in.KubeVIP == nil || !in.Mode.controlPlane() {
		return nil
	}
	address, err := netip.ParseAddr(in.Endpoint.Host)
	if err != nil {
		return renderErrorf("spec.controlPlaneEndpoint.host",
			"kube-vip can only hold an IP address, and the Cluster's endpoint is %q; name an address, or set spec.endpoint.provider of the NovaControlPlane to External", in.Endpoint.Host)
	}
	if port := bindPort(in); port != in.Endpoint.Port {
		return renderErrorf("spec.clusterNetwork.apiServerPort",
			"with kube-vip, API servers listen on the endpoint's port %d, but the Cluster sets %d", in.Endpoint.Port, port)
	}
	networkInterface := in.KubeVIP.Interface
	if networkInterface == "" {
		networkInterface = nodeconfig.Interface
	}
	// While the first machine initializes the cluster, admin.conf has no
	// permissions yet.
	kubeconfig := "/etc/kubernetes/admin.conf"
	if in.Mode == Init {
		kubeconfig = "/etc/kubernetes/super-admin.conf"
	}
	pod, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name": "kube-vip", "namespace": "kube-system",
			// The control plane finds the pod by these labels, as it finds
			// kubeadm's pods.
			"labels": map[string]any{"tier": "control-plane", "component": "kube-vip"},
		},
		"spec": map[string]any{
			"hostNetwork":       true,
			"priorityClassName": "system-node-critical",
			// kube-vip connects to the local API server, by a name that the
			// server's certificate contains.
			"hostAliases": []any{map[string]any{"ip": "127.0.0.1", "hostnames": []any{"kubernetes"}}},
			"containers": []any{map[string]any{
				"name":            "kube-vip",
				"image":           in.KubeVIP.Image,
				"imagePullPolicy": pullPolicy(in),
				"args":            []any{"manager"},
				"env":             kubeVIPEnv(address, in.Endpoint.Port, networkInterface),
				"securityContext": map[string]any{"capabilities": map[string]any{"add": []any{"NET_ADMIN", "NET_RAW"}}},
				"volumeMounts":    []any{map[string]any{"name": "kubeconfig", "mountPath": "/etc/kubernetes/admin.conf"}},
			}},
			"volumes": []any{map[string]any{
				"name": "kubeconfig", "hostPath": map[string]any{"path": kubeconfig, "type": "FileOrCreate"},
			}},
		},
	})
	if err != nil {
		return fmt.Errorf("writing kube-vip: %w", err)
	}
	config.Join.KubeVIP = string(pod)
	return nil
}

func kubeVIPEnv(address netip.Addr, port int32, networkInterface string) []any {
	list := []any{map[string]any{
		"name": "vip_nodename", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}},
	}}
	for _, variable := range [][2]string{
		{"vip_arp", "true"},
		{"port", strconv.Itoa(int(port))},
		{"vip_interface", networkInterface},
		{"vip_subnet", strconv.Itoa(address.BitLen())},
		{"dns_mode", "first"},
		{"cp_enable", "true"},
		{"cp_namespace", "kube-system"},
		{"vip_leaderelection", "true"},
		{"vip_leasename", "plndr-cp-lock"},
		{"vip_leaseduration", leaseDuration},
		{"vip_renewdeadline", renewDeadline},
		{"vip_retryperiod", retryPeriod},
		{"vip_arpRate", arpRate},
		{"address", address.String()},
	} {
		list = append(list, map[string]any{"name": variable[0], "value": variable[1]})
	}
	return list
}
