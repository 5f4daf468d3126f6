package bed

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// providerVersion is the version under which the providers of this work tree stand in
// the bed's clusterctl repository.
const providerVersion = "v0.1.0"

//go:embed overlay/*.yaml
var overlay embed.FS

// Cluster contains the settings of a workload cluster.
type Cluster struct {
	// Name and Namespace name it.
	Name      string
	Namespace string
	// Hypervisor is the hypervisor of its machines. If not set, it is the first
	// one of the bed.
	Hypervisor string
	// ControlPlanes and Workers are the numbers of machines.
	ControlPlanes int
	Workers       int
	// Endpoint is a free address, 10.77.0.10 to 10.77.0.99, for its API server.
	Endpoint string
	// KubeadmControlPlane and KubeadmWorkers put Cluster API's own
	// KubeadmControlPlane in the place of the NovaControlPlane, and
	// KubeadmConfigs in that of the workers' NovaConfigs. The bed must run
	// KubeadmProviders.
	KubeadmControlPlane, KubeadmWorkers bool
	// CAPV puts CAPV's objects in the place of this project's on vSphere. The
	// bed must run CAPV.
	CAPV bool
	// BaseDomain is the domain that Nova DNS serves. Empty serves none.
	BaseDomain string
	// Version is its version of Kubernetes. If not set, it is KubernetesVersion.
	Version string
	// LoadBalanced puts a load balancer in the place of kube-vip, and leaves out
	// the settings of hosts: for a bed without hosts.
	LoadBalanced bool
	// Variables replace those that the bed gives to the cluster template.
	Variables map[string]string
	// StarVault, if set, is the NovaStarVaultIdentity whose StarVault signs its
	// certificates.
	StarVault string
}

// Key returns the name of the Cluster object.
func (c Cluster) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: c.Name}
}

// Versions of Kubernetes for tenants. OlderVersion and NewerVersion are there in
// beds that were started with them.
const (
	KubernetesVersion = host.KubernetesVersion
	OlderVersion      = host.OlderVersion
	NewerVersion      = host.NewerVersion
)

// templatePrefix is how the name of a template begins, before its version.
const templatePrefix = "nova-node-"

// IgnitionTemplate is the template of VMs that Ignition sets up, in beds that
// were started with it.
const IgnitionTemplate = templatePrefix + "ignition"

// VersionTemplate is the template of VMs with a version of Kubernetes.
func VersionTemplate(version string) string { return templatePrefix + version }

// Create creates a workload cluster in the same way as a user: first the
// credentials, then the objects that clusterctl generates. It does not wait.
func (b *Bed) Create(ctx context.Context, c Cluster) error {
	objects, err := b.Generate(ctx, c)
	if err != nil {
		return err
	}
	if err := b.Credentials(ctx, c); err != nil {
		return err
	}
	return Apply(ctx, b.Client, objects...)
}

// Credentials puts the credentials of a cluster's hypervisor into its
// namespace, which it makes unless it exists.
func (b *Bed) Credentials(ctx context.Context, c Cluster) error {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return err
	}
	credentials, err := h.Credentials()
	if err != nil {
		return err
	}
	ns := &corev1.Namespace{}
	ns.Name = c.Namespace
	if err := b.Client.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", c.Namespace, err)
	}
	secret := &corev1.Secret{StringData: credentials}
	secret.Namespace, secret.Name = c.Namespace, h.Facts().CredentialsSecret
	if err := b.Client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", secret.Name, err)
	}
	return nil
}

// Generate returns the objects that "clusterctl generate cluster" creates from
// the product's template, with the settings that only the hosts of a bed need
// merged over them.
func (b *Bed) Generate(ctx context.Context, c Cluster) ([]*unstructured.Unstructured, error) {
	programs, err := tools.Paths(ctx, b.log, "clusterctl")
	if err != nil {
		return nil, err
	}
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	variables, err := h.variables(ctx)
	if err != nil {
		return nil, err
	}
	if c.Version != "" {
		variables[h.Facts().TemplateVariable] = VersionTemplate(c.Version)
	}
	return generate(ctx, programs["clusterctl"], b.layout.path("repository"), h.Facts().Provider, variables, c)
}

// generate runs clusterctl. The variables are those of the hypervisor.
func generate(ctx context.Context, clusterctl, repository, provider string, variables map[string]string, c Cluster) ([]*unstructured.Unstructured, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, clusterctl, "generate", "cluster", c.Name,
		"--config", filepath.Join(repository, "clusterctl.yaml"),
		"--infrastructure", provider+":"+providerVersion,
		"--target-namespace", c.Namespace,
		"--kubernetes-version", cmp.Or(c.Version, KubernetesVersion),
		"--control-plane-machine-count", strconv.Itoa(c.ControlPlanes),
		"--worker-machine-count", strconv.Itoa(c.Workers),
	)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"CONTROL_PLANE_ENDPOINT_HOST="+c.Endpoint, "POD_CIDR=10.244.0.0/16")
	for _, given := range []map[string]string{variables, c.Variables} {
		for name, value := range given {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("generating cluster %s: %w: %s", c.Name, err, errs.String())
	}
	objects, err := parse(out)
	if err != nil {
		return nil, err
	}
	if err := suitHosts(objects, c); err != nil {
		return nil, err
	}
	return objects, errors.Join(withKubeadm(objects, c), withCAPV(objects, c), withVault(objects, c.StarVault))
}

// Variables are the variables of the cluster templates: values that depend on
// the bed, and values of the cluster.
func (b *Bed) Variables(ctx context.Context, c Cluster) (map[string]string, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	variables, err := h.variables(ctx)
	if err != nil {
		return nil, err
	}
	variables["CONTROL_PLANE_ENDPOINT_HOST"], variables["POD_CIDR"] = c.Endpoint, "10.244.0.0/16"
	maps.Copy(variables, c.Variables)
	return variables, nil
}

// Suit parses the output of "clusterctl generate cluster" and merges the
// settings that only the hosts of a bed need over it.
func Suit(manifest []byte, c Cluster) ([]*unstructured.Unstructured, error) {
	objects, err := parse(manifest)
	if err != nil {
		return nil, err
	}
	return objects, suitHosts(objects, c)
}

// suitHosts merges the settings that only the hosts of a bed need into the
// objects that describe nodes.
func suitHosts(objects []*unstructured.Unstructured, c Cluster) error {
	if c.LoadBalanced {
		return suitLoadBalancer(objects)
	}
	for _, object := range objects {
		var err error
		switch object.GetKind() {
		case "NovaControlPlane":
			err = errors.Join(
				merge(object, "node.yaml", "spec", "config"),
				merge(object, "control-plane.yaml", "spec"),
			)
			if c.BaseDomain != "" && err == nil {
				err = unstructured.SetNestedField(object.Object, c.BaseDomain, "spec", "platform", "dns", "baseDomain")
			}
		case "NovaConfigTemplate":
			err = merge(object, "node.yaml", "spec", "template", "spec")
		case "Cluster":
			err = suitTopology(object)
		}
		if err != nil {
			return fmt.Errorf("adapting %s %s to the hosts: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// suitLoadBalancer lets a load balancer have the address of the API server.
func suitLoadBalancer(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != "NovaControlPlane" {
			continue
		}
		if err := unstructured.SetNestedField(object.Object, string(controlplanev1.EndpointProviderExternal), "spec", "endpoint", "provider"); err != nil {
			return fmt.Errorf("setting the provider of the endpoint: %w", err)
		}
	}
	return nil
}

// ClassVariables are the variables of a cluster class with the settings that
// only the hosts of a bed need.
func ClassVariables() (map[string]any, error) {
	controlPlane, node := &unstructured.Unstructured{Object: map[string]any{}}, &unstructured.Unstructured{Object: map[string]any{}}
	err := errors.Join(
		merge(controlPlane, "node.yaml", "config"),
		merge(controlPlane, "control-plane.yaml"),
		merge(node, "node.yaml"),
	)
	return map[string]any{
		"controlPlaneConfig": controlPlane.Object["config"], "platform": controlPlane.Object["platform"], "nodeConfig": node.Object,
	}, err
}

// suitTopology adds the variables to a Cluster that has a topology.
func suitTopology(cluster *unstructured.Unstructured) error {
	given, found, err := unstructured.NestedSlice(cluster.Object, "spec", "topology", "variables")
	if err != nil || !found {
		return err
	}
	variables, err := ClassVariables()
	if err != nil {
		return err
	}
	for name, value := range variables {
		given = append(given, map[string]any{"name": name, "value": value})
	}
	return unstructured.SetNestedSlice(cluster.Object, given, "spec", "topology", "variables")
}

// merge merges a file of the overlay into a field of an object.
func merge(object *unstructured.Unstructured, file string, fields ...string) error {
	patch, err := overlay.ReadFile("overlay/" + file)
	if err != nil {
		return err
	}
	if patch, err = yaml.YAMLToJSON(patch); err != nil {
		return err
	}
	field, _, err := unstructured.NestedMap(object.Object, fields...)
	if err != nil {
		return err
	}
	if field == nil {
		field = map[string]any{}
	}
	before, err := json.Marshal(field)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return err
	}
	merged := map[string]any{}
	if err := yaml.Unmarshal(after, &merged); err != nil {
		return err
	}
	if len(fields) == 0 {
		object.Object = merged
		return nil
	}
	return unstructured.SetNestedMap(object.Object, merged, fields...)
}

// writeRepository lays out the providers of this work tree the way clusterctl
// finds releases.
func writeRepository(repository string, components map[string][]byte) error {
	var providers []map[string]string
	kinds := map[string]string{
		"nova-bootstrap":     "BootstrapProvider",
		"nova-control-plane": "ControlPlaneProvider",
		AddonProvider:        "AddonProvider",
	}
	for _, p := range registry.All() {
		kinds[p.Manager()] = "InfrastructureProvider"
	}
	for name, kind := range kinds {
		if components[name] == nil {
			continue
		}
		label, file, provider := clusterctlNames(name)
		dir := filepath.Join(repository, label, providerVersion)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("writing clusterctl repository: %w", err)
		}
		metadata, err := os.ReadFile(filepath.Join(tools.Root(), "config", name, "metadata.yaml"))
		if err != nil {
			return fmt.Errorf("writing clusterctl repository: %w", err)
		}
		files := map[string][]byte{file: components[name], "metadata.yaml": metadata}
		template, err := os.ReadFile(filepath.Join(tools.Root(), "templates", name, "cluster-template.yaml"))
		if err == nil {
			files["cluster-template.yaml"] = template
		} else if !os.IsNotExist(err) {
			return fmt.Errorf("writing clusterctl repository: %w", err)
		}
		for file, data := range files {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
				return fmt.Errorf("writing clusterctl repository: %w", err)
			}
		}
		providers = append(providers, map[string]string{"name": provider, "type": kind, "url": filepath.Join(dir, file)})
	}
	if err := os.MkdirAll(repository, 0o755); err != nil {
		return fmt.Errorf("writing clusterctl repository: %w", err)
	}
	data, err := yaml.Marshal(map[string]any{"providers": providers})
	if err != nil {
		return fmt.Errorf("writing clusterctl repository: %w", err)
	}
	if err := os.WriteFile(filepath.Join(repository, "clusterctl.yaml"), data, 0o644); err != nil {
		return fmt.Errorf("writing clusterctl repository: %w", err)
	}
	return nil
}

// clusterctlNames returns how clusterctl labels a provider, the name of its
// components file, and its name for people.
func clusterctlNames(name string) (label, file, provider string) {
	switch name {
	case "nova-bootstrap":
		return "bootstrap-nova", "bootstrap-components.yaml", "nova"
	case "nova-control-plane":
		return "control-plane-nova", "control-plane-components.yaml", "nova"
	case AddonProvider:
		return "addon-nova", "addon-components.yaml", "nova"
	default:
		return "infrastructure-" + name, "infrastructure-components.yaml", name
	}
}
