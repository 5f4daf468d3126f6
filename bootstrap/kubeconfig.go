package bootstrap

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// discoveryFile is the kubeconfig for kubeadm join. It contains the machine's
// own certificate instead of a bootstrap token; only clusters with an external
// CA use a token. All data is embedded, because kubeadm passes the file on to
// the kubelet.
func discoveryFile(in *Input) ([]byte, error) {
	user := map[string]any{"client-certificate-data": in.Join.Certificate, "client-key-data": in.Join.Key}
	if in.Join.Token != "" {
		user = map[string]any{"token": in.Join.Token}
	}
	out, err := yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "bootstrap",
		"clusters": []any{map[string]any{"name": "cluster", "cluster": map[string]any{
			"server":                     "https://" + in.Endpoint.String(),
			"certificate-authority-data": in.Join.CA,
		}}},
		"users": []any{map[string]any{"name": "machine", "user": user}},
		"contexts": []any{map[string]any{"name": "bootstrap", "context": map[string]any{
			"cluster": "cluster", "user": "machine",
		}}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing discovery file: %w", err)
	}
	return out, nil
}
