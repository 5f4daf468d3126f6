package bootstrap

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// discoveryFile is the kubeconfig that kubeadm joins with. The machine's own
// certificate in it stands in for a bootstrap token, which it has only where
// nobody can sign for the cluster; everything is embedded,
// because kubeadm passes it on to the kubelet.
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
