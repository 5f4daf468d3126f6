package kubeadm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// defaultDays is the default lifetime of kubeadm's certificates, in days.
const defaultDays = 365

const (
	// ConfigName is the name of the ConfigMap with kubeadm's stored
	// configuration, in namespace kube-system.
	ConfigName = "kubeadm-config"
	// ConfigurationKey is the key of the ClusterConfiguration in it.
	ConfigurationKey       = "ClusterConfiguration"
	kubernetesVersionField = "kubernetesVersion"
	networkingField        = "networking"
)

// FieldsAnnotation is set on a ConfigMap with a configuration that kubeadm
// stored and names the fields that the spec set when the configuration was last
// written. A field that the spec no longer sets is removed. Fields that kubeadm
// or an administrator of the workload cluster added stay.
const FieldsAnnotation = "controlplane.cluster.x-k8s.io/nova-fields"

// owned are the fields of the stored ClusterConfiguration that follow the spec
// from the start: the spec may have changed between kubeadm init and the first
// time that their names were recorded.
var owned = [][]string{
	{"apiServer", "extraArgs"},
	{"apiServer", "certSANs"},
	{"apiServer", "extraEnvs"},
	{"apiServer", "extraVolumes"},
	{"controllerManager", "extraArgs"},
	{"controllerManager", "extraEnvs"},
	{"controllerManager", "extraVolumes"},
	{"scheduler", "extraArgs"},
	{"scheduler", "extraEnvs"},
	{"scheduler", "extraVolumes"},
	{"etcd", "local", "extraArgs"},
	{"etcd", "local", "extraEnvs"},
	{"etcd", "local", "imageRepository"},
	{"etcd", "local", "imageTag"},
	{"imageRepository"},
}

// Document is a document that kubeadm stored in a ConfigMap.
type Document struct {
	// Content is the document, in YAML.
	Content string
	// Fields are the names in fieldsAnnotation, in JSON; empty before the first
	// write.
	Fields string
}

// NextConfiguration returns the desired stored ClusterConfiguration. The
// networking of a running cluster does not change: API servers with different
// settings would allocate addresses of Services from different ranges.
func NextConfiguration(stored Document, rendered []byte, version string) (Document, error) {
	want := map[string]any{}
	if err := yaml.Unmarshal(rendered, &want); err != nil {
		return stored, fmt.Errorf("reading ClusterConfiguration: %w", err)
	}
	want[kubernetesVersionField] = version
	is := map[string]any{}
	if err := yaml.Unmarshal([]byte(stored.Content), &is); err != nil {
		return stored, fmt.Errorf("reading kubeadm's stored configuration: %w", err)
	}
	if is[networkingField] != nil {
		delete(want, networkingField)
	}
	drop := slices.Clone(owned)
	if etcd, _ := want["etcd"].(map[string]any); etcd["external"] != nil {
		// kubeadm creates certificates for members of etcd as soon as this is
		// set.
		remove(want, []string{"etcd", "local"})
		drop = append(drop, []string{"etcd", "local"})
	}
	return nextDocument(stored, want, drop)
}

// IsStored reports whether kubeadm's stored configuration has the rendered settings
// and the version: kubeadm deploys components from it.
func IsStored(config *corev1.ConfigMap, rendered []byte, version string) (bool, error) {
	stored := DocumentIn(config, ConfigurationKey)
	next, err := NextConfiguration(stored, rendered, version)
	return next.Content == stored.Content, err
}

// nextDocument returns a stored document with the desired fields, and without
// Fields that were desired the last time and are not any more. The content is
// identical if no field changes.
func nextDocument(stored Document, want map[string]any, drop [][]string) (Document, error) {
	is, content := map[string]any{}, map[string]any{}
	for _, into := range []*map[string]any{&is, &content} {
		if err := yaml.Unmarshal([]byte(stored.Content), into); err != nil {
			return stored, fmt.Errorf("reading kubeadm's stored configuration: %w", err)
		}
	}
	want = withoutEmpty(want)
	last := map[string]any{}
	if err := json.Unmarshal([]byte(stored.Fields), &last); err != nil {
		// Not recorded yet, or altered: no field of the document is known to be
		// obsolete.
		last = nil
	}
	prune(content, last, want)
	for _, path := range drop {
		remove(content, path)
	}
	merge(content, want)
	names := fieldNames(want)
	// Written once and never removed.
	delete(names, networkingField)
	fields, err := json.Marshal(names)
	if err != nil {
		return stored, fmt.Errorf("encoding names of fields: %w", err)
	}
	next := Document{Content: stored.Content, Fields: string(fields)}
	if reflect.DeepEqual(withoutEmpty(is), withoutEmpty(content)) {
		return next, nil
	}
	out, err := yaml.Marshal(content)
	if err != nil {
		return stored, fmt.Errorf("writing kubeadm's stored configuration: %w", err)
	}
	next.Content = string(out)
	return next, nil
}

// fieldNames returns the names of all fields; a field without fields of its own
// has an empty map.
func fieldNames(of map[string]any) map[string]any {
	names := map[string]any{}
	for key, value := range of {
		below, _ := value.(map[string]any)
		names[key] = fieldNames(below)
	}
	return names
}

// prune removes the fields that were desired the last time and are not any
// more.
func prune(from, last, want map[string]any) {
	for key, value := range last {
		_, wanted := want[key]
		below, _ := value.(map[string]any)
		existing, isMap := from[key].(map[string]any)
		if len(below) == 0 || !isMap {
			if !wanted {
				delete(from, key)
			}
			continue
		}
		wantBelow, _ := want[key].(map[string]any)
		if prune(existing, below, wantBelow); len(existing) == 0 {
			delete(from, key)
		}
	}
}

// ChangedNetworking returns the settings of the network that differ from those
// the cluster was initialized with.
func ChangedNetworking(stored string, rendered []byte) []string {
	type document struct {
		Networking map[string]string `json:"networking"`
	}
	is, want := document{}, document{}
	if yaml.Unmarshal([]byte(stored), &is) != nil || yaml.Unmarshal(rendered, &want) != nil || is.Networking == nil {
		return nil // a failure is reported where the configuration is stored
	}
	var changed []string
	for _, field := range []struct{ name, defaults string }{
		{"dnsDomain", "cluster.local"}, {"podSubnet", ""}, {"serviceSubnet", "10.96.0.0/12"},
	} {
		was, now := cmp.Or(is.Networking[field.name], field.defaults), cmp.Or(want.Networking[field.name], field.defaults)
		if was != now {
			changed = append(changed, fmt.Sprintf("%s is %q in the workload cluster and %q in the Cluster", field.name, was, now))
		}
	}
	return changed
}

// ReadStored reads the version and whether etcd runs elsewhere from kubeadm's
// stored configuration.
func ReadStored(stored string) (version string, externalEtcd bool) {
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

// CertificateLifetime reads the lifetime of certificates from a ClusterConfiguration.
func CertificateLifetime(configuration []byte) time.Duration {
	config := struct {
		CertificateValidityPeriod metav1.Duration `json:"certificateValidityPeriod"`
	}{}
	if err := yaml.Unmarshal(configuration, &config); err != nil || config.CertificateValidityPeriod.Duration <= 0 {
		return defaultDays * 24 * time.Hour
	}
	return config.CertificateValidityPeriod.Duration
}

// merge merges from into the map, recursively.
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

// withoutEmpty returns the map without empty values: kubeadm omits them when it
// stores.
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

// SetVersion prepares a workload cluster for machines of the desired version.
func SetVersion(ctx context.Context, c client.Client, want Upgrade) error {
	if err := ensurePermissions(ctx, c); err != nil {
		return err
	}
	return storeConfiguration(ctx, c, want)
}

// storeConfiguration writes kubeadm's stored configuration if it has to change.
func storeConfiguration(ctx context.Context, c client.Client, want Upgrade) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		config := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: ConfigName}, config); err != nil {
			return fmt.Errorf("reading kubeadm's configuration: %w", err)
		}
		stored := DocumentIn(config, ConfigurationKey)
		next, err := NextConfiguration(stored, want.Configuration, want.Version)
		if err != nil || next == stored {
			return err
		}
		next.put(config, ConfigurationKey)
		return c.Update(ctx, config)
	})
}

// DocumentIn reads a document from a ConfigMap.
func DocumentIn(config *corev1.ConfigMap, key string) Document {
	return Document{Content: config.Data[key], Fields: config.Annotations[FieldsAnnotation]}
}

// put writes a document into a ConfigMap.
func (d Document) put(config *corev1.ConfigMap, key string) {
	config.Data[key] = d.Content
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, FieldsAnnotation, d.Fields)
}

// ensurePermissions creates the bindings that newer versions of kubeadm require
// and that only their init or upgrade would create. The role of this manager's
// user allows it to bind only these roles.
func ensurePermissions(ctx context.Context, c client.Client) error {
	for _, binding := range []rbacv1.ClusterRoleBinding{
		// Late patches of 1.36 no longer put the API server's certificate for
		// kubelets into a group: without this it could not reach them.
		ClusterRoleBinding("kubeadm:apiserver-kubelet-client", "system:kubelet-api-admin", rbacv1.UserKind, "kube-apiserver-kubelet-client"),
	} {
		err := c.Get(ctx, client.ObjectKeyFromObject(&binding), &rbacv1.ClusterRoleBinding{})
		if err == nil {
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading binding %s: %w", binding.Name, err)
		}
		if err := client.IgnoreAlreadyExists(c.Create(ctx, &binding)); err != nil {
			return fmt.Errorf("creating binding %s: %w", binding.Name, err)
		}
	}
	return nil
}

// ClusterRoleBinding returns a binding of a ClusterRole to one subject.
func ClusterRoleBinding(name, role, subjectKind, subject string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: subjectKind, Name: subject}},
	}
}
