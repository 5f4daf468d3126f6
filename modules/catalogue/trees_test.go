package catalogue

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/envsubst"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var (
	builtMu sync.Mutex
	built   = map[string][]byte{}
)

// build runs Kustomize on a tree, once.
func build(t *testing.T, path string) []byte {
	t.Helper()
	builtMu.Lock()
	defer builtMu.Unlock()
	if out, ok := built[path]; ok {
		return out
	}
	paths, err := tools.Paths(t.Context(), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), paths["kubectl"], "kustomize", path)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("building %s: %v: %s", path, err, errs.String())
	}
	built[path] = out
	return out
}

// delivered returns the objects that Flux would write for a module: the tree as
// built by Kustomize, with variables substituted per object; a missing variable
// is an error. Values lose their line breaks, as they do in Flux.
func delivered(t *testing.T, m modules.Module) []*unstructured.Unstructured {
	t.Helper()
	k, ok := m.Object.(*kustomizev1.Kustomization)
	if !ok {
		return nil
	}
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(build(t, k.Spec.Path))))
	var out []*unstructured.Unstructured
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := envsubst.Eval(string(doc), func(name string) (string, bool) {
			value, ok := k.Spec.PostBuild.Substitute[name]
			return strings.ReplaceAll(value, "\n", ""), ok
		})
		if err != nil {
			t.Fatalf("module %s: %v", m.Name, err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatalf("module %s: %v in\n%s", m.Name, err, text)
		}
		if k.Spec.TargetNamespace != "" {
			o.SetNamespace(k.Spec.TargetNamespace)
		}
		out = append(out, o)
	}
}

// ofOperators are the groups whose CRDs are part of a chart, so that this test
// has no schemas for them.
var ofOperators = []string{
	"logging.banzaicloud.io", "cert-manager.io", "traefik.io", "metallb.io", "gateway.envoyproxy.io", "gateway.networking.k8s.io",
	"snapshot.storage.k8s.io",
}

// Every object of our own trees has a known kind, and no unknown field.
func TestTreesFollowTheSchemas(t *testing.T) {
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	seen := map[string]bool{}
	for name, s := range named(t) {
		for _, set := range Names() {
			for _, m := range render(t, set, s).Modules {
				for _, o := range delivered(t, m) {
					seen[m.Name] = true
					if slices.Contains(ofOperators, o.GroupVersionKind().Group) {
						continue
					}
					data, err := o.MarshalJSON()
					if err != nil {
						t.Fatal(err)
					}
					if _, _, err := codecs.UniversalDeserializer().Decode(data, nil, nil); err != nil {
						t.Errorf("%s: module %s: %s %s: %v", name, m.Name, o.GetKind(), o.GetName(), err)
					}
				}
			}
		}
	}
	for _, set := range Names() {
		c := content(t, set)
		for i := range c.Modules {
			if c.Modules[i].Kustomize != nil && !seen[c.Modules[i].Name] {
				t.Errorf("no site switches %s on", c.Modules[i].Name)
			}
		}
	}
}

// Objects in the management cluster are in the namespace of their Cluster and
// contain the Cluster's name, so that those of two Clusters do not conflict.
func TestManagementStaysInItsNamespace(t *testing.T) {
	for name, s := range named(t) {
		for _, m := range render(t, Management, s).Modules {
			if m.InWorkloadCluster || m.Off {
				continue
			}
			for _, o := range delivered(t, m) {
				if !slices.Contains([]string{"Deployment", "ConfigMap"}, o.GetKind()) {
					t.Errorf("%s: %s writes a %s to the management cluster", name, m.Name, o.GetKind())
				}
				if !strings.HasPrefix(o.GetName(), "alpha-") || o.GetNamespace() != "team" {
					t.Errorf("%s: %s writes %s/%s", name, m.Name, o.GetNamespace(), o.GetName())
				}
			}
		}
	}
}

// configMap is a ConfigMap of a module's tree, as it is applied to the workload
// cluster.
func configMap(t *testing.T, s sites.Site, module, name string) *corev1.ConfigMap {
	t.Helper()
	for _, m := range render(t, Base, s).Modules {
		if m.Name != module {
			continue
		}
		for _, o := range delivered(t, m) {
			if o.GetKind() == "ConfigMap" && o.GetName() == name {
				c := &corev1.ConfigMap{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c); err != nil {
					t.Fatal(err)
				}
				return c
			}
		}
	}
	t.Fatalf("module %s has no ConfigMap %s", module, name)
	return nil
}

// After the module is removed, CoreDNS keeps its settings.
func TestCoreDNSKeepsItsSettings(t *testing.T) {
	c := configMap(t, named(t)["zvirt-external-3"], "coredns", "coredns")
	if c.Namespace != "kube-system" || c.Annotations["kustomize.toolkit.fluxcd.io/prune"] != "disabled" {
		t.Errorf("ConfigMap %s/%s has the annotations %v", c.Namespace, c.Name, c.Annotations)
	}
}

// The driver on nodes uses the programs and mounts of the node, and has nothing with
// which it could reach the engine or the API server.
func TestCSINodeOfOVirt(t *testing.T) {
	for _, m := range render(t, Base, named(t)["zvirt-external-3"]).Modules {
		if m.Name != "ovirt-csi-node" {
			continue
		}
		for _, o := range delivered(t, m) {
			if !slices.Contains([]string{"Namespace", "CSIDriver", "DaemonSet"}, o.GetKind()) {
				t.Errorf("the module has a %s", o.GetKind())
			}
			if o.GetKind() != "DaemonSet" {
				continue
			}
			set := &appsv1.DaemonSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set); err != nil {
				t.Fatal(err)
			}
			pod := set.Spec.Template.Spec
			if pod.HostNetwork || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Error("the driver has the network of the host, or a token")
			}
			for _, v := range pod.Volumes {
				if v.HostPath == nil {
					t.Errorf("the volume %s is not a path of the node", v.Name)
				}
			}
			driver := pod.Containers[0]
			if want := "ghcr.io/nova-platform/nova-ovirt-csi-node:"; !strings.HasPrefix(driver.Image, want) {
				t.Errorf("the image of the driver is %s, not %s", driver.Image, want)
			}
			propagated := corev1.MountPropagationBidirectional
			if want := []corev1.VolumeMount{{Name: "root", MountPath: "/host", MountPropagation: &propagated}}; !reflect.DeepEqual(driver.VolumeMounts, want) || !slices.Contains(driver.Args, "--root=/host") {
				t.Errorf("the driver has the arguments %q and the mounts %+v", driver.Args, driver.VolumeMounts)
			}
			return
		}
	}
	t.Fatal("the site has no DaemonSet of the driver")
}
