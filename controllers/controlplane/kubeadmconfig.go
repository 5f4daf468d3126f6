package controlplane

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	clusterConfigurationKey = "ClusterConfiguration"
	kubernetesVersionField  = "kubernetesVersion"
)

// owned are the fields of the stored ClusterConfiguration that follow the spec
// also when something is taken out of it. Of everything else only what the
// spec says is written, so what kubeadm or a person added stays.
var owned = [][]string{
	{"apiServer", "extraArgs"},
	{"apiServer", "certSANs"},
	{"controllerManager", "extraArgs"},
	{"scheduler", "extraArgs"},
	{"etcd", "local", "extraArgs"},
	{"imageRepository"},
}

// nextConfiguration returns what kubeadm's stored configuration should become.
// It is the stored one, letter for letter, if nothing is to be changed.
func nextConfiguration(stored string, rendered []byte, version string) (string, error) {
	is, want := map[string]any{}, map[string]any{}
	if err := yaml.Unmarshal([]byte(stored), &is); err != nil {
		return "", fmt.Errorf("reading kubeadm's stored configuration: %w", err)
	}
	if err := yaml.Unmarshal(rendered, &want); err != nil {
		return "", fmt.Errorf("reading ClusterConfiguration: %w", err)
	}
	want[kubernetesVersionField] = version
	next := map[string]any{}
	if err := yaml.Unmarshal([]byte(stored), &next); err != nil {
		return "", fmt.Errorf("reading kubeadm's stored configuration: %w", err)
	}
	for _, path := range owned {
		remove(next, path)
	}
	merge(next, withoutEmpty(want))
	if reflect.DeepEqual(withoutEmpty(is), withoutEmpty(next)) {
		return stored, nil
	}
	out, err := yaml.Marshal(next)
	if err != nil {
		return "", fmt.Errorf("writing kubeadm's stored configuration: %w", err)
	}
	return string(out), nil
}

// readStored reads the version and whether etcd runs elsewhere from kubeadm's
// stored configuration.
func readStored(stored string) (version string, externalEtcd bool) {
	config := struct {
		KubernetesVersion string `json:"kubernetesVersion"`
		Etcd              struct {
			External map[string]any `json:"external"`
		} `json:"etcd"`
	}{}
	if err := yaml.Unmarshal([]byte(stored), &config); err != nil {
		return "", false
	}
	return config.KubernetesVersion, config.Etcd.External != nil
}

// readLifetime reads from a ClusterConfiguration how long certificates last.
func readLifetime(configuration []byte) time.Duration {
	config := struct {
		CertificateValidityPeriod metav1.Duration `json:"certificateValidityPeriod"`
	}{}
	if err := yaml.Unmarshal(configuration, &config); err != nil || config.CertificateValidityPeriod.Duration <= 0 {
		return kubeadmLifetime
	}
	return config.CertificateValidityPeriod.Duration
}

// merge writes what is in from into the map, map by map.
func merge(into, from map[string]any) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		existing, hasMap := into[key].(map[string]any)
		if isMap && hasMap {
			merge(existing, below)
			continue
		}
		into[key] = value
	}
}

func remove(from map[string]any, path []string) {
	for _, key := range path[:len(path)-1] {
		below, ok := from[key].(map[string]any)
		if !ok {
			return
		}
		from = below
	}
	delete(from, path[len(path)-1])
}

// withoutEmpty returns the map without what says nothing: kubeadm leaves that
// out when it stores.
func withoutEmpty(of map[string]any) map[string]any {
	kept := maps.Clone(of)
	for key, value := range kept {
		switch value := value.(type) {
		case nil:
			delete(kept, key)
		case []any:
			if len(value) == 0 {
				delete(kept, key)
			}
		case map[string]any:
			if kept[key] = withoutEmpty(value); len(withoutEmpty(value)) == 0 {
				delete(kept, key)
			}
		}
	}
	return kept
}

// storeConfiguration writes kubeadm's stored configuration if it has to change.
func storeConfiguration(ctx context.Context, c client.Client, want Upgrade) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		config := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadmConfigName}, config); err != nil {
			return fmt.Errorf("reading kubeadm's configuration: %w", err)
		}
		stored := config.Data[clusterConfigurationKey]
		next, err := nextConfiguration(stored, want.Configuration, want.Version)
		if err != nil || next == stored {
			return err
		}
		config.Data[clusterConfigurationKey] = next
		return c.Update(ctx, config)
	})
}

// ensurePermissions makes the bindings that newer versions of kubeadm count on
// and that only their init or upgrade would make.
func ensurePermissions(ctx context.Context, c client.Client) error {
	for _, binding := range []rbacv1.ClusterRoleBinding{
		// Since 1.29 admin.conf is of this group.
		clusterRoleBinding("kubeadm:cluster-admins", "cluster-admin", rbacv1.GroupKind, "kubeadm:cluster-admins"),
		// Late patches of 1.36 no longer put the API server's certificate for
		// kubelets into a group: without this it could not reach them.
		clusterRoleBinding("kubeadm:apiserver-kubelet-client", "system:kubelet-api-admin", rbacv1.UserKind, "kube-apiserver-kubelet-client"),
	} {
		err := c.Get(ctx, client.ObjectKeyFromObject(&binding), &rbacv1.ClusterRoleBinding{})
		if err == nil {
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading binding %s: %w", binding.Name, err)
		}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, &binding)); err != nil {
			return fmt.Errorf("making binding %s: %w", binding.Name, err)
		}
	}
	return nil
}

func clusterRoleBinding(name, role, subjectKind, subject string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: subjectKind, Name: subject}},
	}
}
