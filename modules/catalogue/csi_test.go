package catalogue

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// management returns the objects of a module of the management cluster.
func management(t *testing.T, facts *modules.Facts, module string) (map[string]*unstructured.Unstructured, map[string]string) {
	t.Helper()
	rendering, err := modules.Render(content(t, Management), modules.Target{
		Namespace: "team", Name: "alpha", Set: Management, Origin: "team", Revision: "0123456789", Facts: facts,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rendering.Modules {
		k, ok := m.Object.(*kustomizev1.Kustomization)
		if m.Name != module || !ok {
			continue
		}
		out := map[string]*unstructured.Unstructured{}
		for _, o := range delivered(t, m) {
			out[o.GetKind()] = o
		}
		return out, k.Spec.PostBuild.Substitute
	}
	t.Fatalf("module %s is off", module)
	return nil, nil
}

// settings is the ConfigMap of a module of the management cluster.
func settings(t *testing.T, facts *modules.Facts, module string) *corev1.ConfigMap {
	t.Helper()
	objects, _ := management(t, facts, module)
	out := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects["ConfigMap"].Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// thumbprint is the SHA-256 of a certificate.
var thumbprint = strings.TrimSuffix(strings.Repeat("ab:", 32), ":")

// The configuration of the vSphere CSI driver follows the facts, and names
// neither credentials nor datacenters: the driver searches all datacenters.
func TestVSphereCSIConfig(t *testing.T) {
	const id = "cluster-id = \"3f1f3b0a-4f43-4f0c-9b40-9d1b1f3a2c11\"\ncluster-distribution = \"VanillaK8S\"\n"
	for _, tc := range []struct {
		name, server, bundle, pin string
		spec                      map[string]any
		want, secret              string
	}{
		{
			"CA bundle", "vcenter.example", "PEM", "", map[string]any{"identityRef": map[string]any{"kind": "Secret", "name": "own"}},
			"[Global]\n" + id + "ca-file = \"/etc/cloud/ca.crt\"\n[VirtualCenter \"vcenter.example\"]\nport = \"443\"\n", "own",
		},
		{
			"another vCenter with a port and a thumbprint, of an identity", "vcenter-2.example:8443", "", thumbprint,
			map[string]any{"identityRef": map[string]any{"kind": "NovaVSphereIdentity", "name": "shared"}},
			"[Global]\n" + id + "thumbprint = \"" + strings.ToUpper(thumbprint) + "\"\n[VirtualCenter \"vcenter-2.example\"]\nport = \"8443\"\n", "alpha-hypervisor",
		},
		{
			"IPv6, the CAs of the system, and an identity", "[2001:db8::1]:8443", "", "",
			map[string]any{"identityRef": map[string]any{"kind": "NovaVSphereIdentity", "name": "shared"}},
			"[Global]\n" + id + "[VirtualCenter \"2001:db8::1\"]\nport = \"8443\"\n", "alpha-hypervisor",
		},
		{
			"failure domains in other datacenters", "vcenter.example", "", "", map[string]any{
				"placement": map[string]any{"datacenter": "DC0"},
				"failureDomains": []any{
					map[string]any{"name": "a", "placement": map[string]any{"datacenter": "DC1"}},
					map[string]any{"name": "b", "placement": map[string]any{"datacenter": "/folder/DC2, old"}},
				},
			},
			"[Global]\n" + id + "[VirtualCenter \"vcenter.example\"]\nport = \"443\"\n", "alpha-hypervisor",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := sites.Site{Hypervisor: "vsphere"}.Facts()
			f.Hypervisor.SetServer(tc.server)
			f.Hypervisor.CABundle, f.Hypervisor.Thumbprint, f.Hypervisor.Spec = tc.bundle, tc.pin, tc.spec
			got := settings(t, f, "vsphere-csi-controller").Data
			if got["csi-vsphere.conf"] != tc.want || got["ca.crt"] != tc.bundle {
				t.Errorf("the configuration is\n%s\nnot\n%s\nwith the CA %q", got["csi-vsphere.conf"], tc.want, got["ca.crt"])
			}
			_, variables := management(t, f, "vsphere-csi-controller")
			if want := `"` + tc.secret + `"`; variables["credentialsSecret"] != want {
				t.Errorf("the credentials come from %s, not %s", variables["credentialsSecret"], want)
			}
		})
	}
}

// With the label the driver and the provisioner both use the tags of vCenter, and without it neither does: the
// driver refuses nodes without tags.
func TestVSphereCSITopology(t *testing.T) {
	for label, want := range map[string]bool{"": false, "false": false, "true": true} {
		site := sites.Site{Hypervisor: "vsphere"}
		if label != "" {
			site.Labels = map[string]string{"addons.cluster.x-k8s.io/vsphere-topology": label}
		}
		f := site.Facts()
		config := settings(t, f, "vsphere-csi-controller").Data["csi-vsphere.conf"]
		if got := strings.HasSuffix(config, "\n[Labels]\ntopology-categories = \"k8s-region, k8s-zone\"\n"); got != want {
			t.Errorf("label %q: the configuration is\n%s", label, config)
		}
		objects, _ := management(t, f, "vsphere-csi-controller")
		data, err := yaml.Marshal(objects["Deployment"])
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"- --feature-gates=Topology=%t\n", "- --strict-topology=%t\n"} {
			if !strings.Contains(string(data), fmt.Sprintf(flag, want)) {
				t.Errorf("label %q: the provisioner does not have "+flag, label, want)
			}
		}
	}
}

// Each container that talks to the workload cluster uses its kubeconfig and
// keeps its lease there, and none has a token of the management cluster.
func TestCSIControllersUseTheWorkloadCluster(t *testing.T) {
	for hypervisor, module := range map[string]string{"vsphere": "vsphere-csi-controller", "zvirt": "ovirt-csi-controller"} {
		objects, _ := management(t, sites.Site{Hypervisor: hypervisor}.Facts(), module)
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects["Deployment"].Object, d); err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s has a token of the management cluster", module)
		}
		for i := range pod.Containers {
			c := &pod.Containers[i]
			data, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if c.Name != "liveness" && !strings.Contains(text, "/etc/tenant/value") {
				t.Errorf("%s: container %s does not use the kubeconfig", module, c.Name)
			}
			if strings.Contains(text, "--leader-election\n") && !strings.Contains(text, "--leader-election-namespace=nova-csi-drivers") {
				t.Errorf("%s: container %s has its lease elsewhere", module, c.Name)
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: container %s has no limits", module, c.Name)
			}
		}
	}
}

// driver is a running script of a CSI controller.
type driver struct {
	*exec.Cmd
	folder string
	// line is the first line of its output.
	line string
}

// controllers are the modules of the CSI controllers by hypervisor, their trees, and
// the folders of their settings in the pod.
var controllers = map[string]struct{ module, tree, folder string }{
	"vsphere": {"vsphere-csi-controller", "vsphere/csi-controller", "cloud"},
	"zvirt":   {"ovirt-csi-controller", "ovirt/csi-controller", "ovirt"},
}

// containersOf returns the containers of a file with a Deployment or a DaemonSet.
func containersOf(t *testing.T, file string) []corev1.Container {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	var workload appsv1.Deployment
	if err := yaml.Unmarshal(data, &workload); err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template.Spec.Containers
}

// Users of a namespace may write ConfigMaps there, and the pods of these modules have
// the credentials of a hypervisor: no container runs a file of a ConfigMap.
func TestNoContainerRunsAFileOfAConfigMap(t *testing.T) {
	for _, c := range controllers {
		for _, container := range containersOf(t, c.tree+"/deployment.yaml") {
			for i, word := range container.Command {
				if (i != 2 || container.Command[1] != "-c") && strings.HasPrefix(word, "/etc/") {
					t.Errorf("%s: the container %s runs %s", c.module, container.Name, word)
				}
			}
		}
	}
	for hypervisor, c := range controllers {
		for name := range settings(t, sites.Site{Hypervisor: hypervisor}.Facts(), c.module).Data {
			if strings.HasSuffix(name, ".sh") {
				t.Errorf("%s: the ConfigMap has the script %s", c.module, name)
			}
		}
	}
}

// startDriver runs the script of the module with a shell program as the driver,
// until the driver has written a line.
func startDriver(t *testing.T, hypervisor, program string) *driver {
	t.Helper()
	module := controllers[hypervisor]
	out := &driver{folder: t.TempDir()}
	files := map[string]string{"tenant/value": "first", "credentials/username": "csi@vsphere.local", "credentials/password": `a"b\c$d 'e: #`}
	for name, data := range settings(t, sites.Site{Hypervisor: hypervisor}.Facts(), module.module).Data {
		files[module.folder+"/"+name] = data
	}
	script := strings.ReplaceAll(containersOf(t, module.tree+"/deployment.yaml")[0].Command[2], "/etc/", out.folder+"/")
	for name, data := range files {
		path := filepath.Join(out.folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	out.Cmd = exec.CommandContext(ctx, "/bin/sh", "-c", script, "run", "/bin/sh", "-c", program)
	out.Env = append(os.Environ(), "INTERVAL_SECONDS=0.05", "OVIRT_CONFIG="+filepath.Join(out.folder, "ovirt-config.yaml"))
	// The driver and the script end together if the test takes too long.
	out.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out.Cancel = func() error { return syscall.Kill(-out.Process.Pid, syscall.SIGKILL) }
	stdout, err := out.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Start(); err != nil {
		t.Fatal(err)
	}
	if out.line, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the driver did not start: %v", err)
	}
	return out
}

// The script of the controllers passes the credentials to the driver, and ends
// as the driver ends.
func TestCSIDriverGetsTheCredentials(t *testing.T) {
	d := startDriver(t, "vsphere", `printf '%s\n' "$VSPHERE_USER $VSPHERE_PASSWORD"; exit 3`)
	if err := d.Wait(); err == nil || d.ProcessState.ExitCode() != 3 {
		t.Errorf("the script ended with %v", err)
	}
	if d.line != "csi@vsphere.local a\"b\\c$d 'e: #\n" {
		t.Errorf("the driver got the credentials %q", d.line)
	}
	d = startDriver(t, "zvirt", `tr '\n' '|' <"$OVIRT_CONFIG"; echo; exit 3`)
	if err := d.Wait(); err == nil || d.ProcessState.ExitCode() != 3 {
		t.Errorf("the script ended with %v", err)
	}
	got, want := map[string]string{}, map[string]string{
		"ovirt_url": "https://hypervisor.example/ovirt-engine/api", "ovirt_cafile": "/etc/ovirt/ca.crt",
		"ovirt_username": "csi@vsphere.local", "ovirt_password": `a"b\c$d 'e: #`,
	}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(d.line, "|", "\n")), &got); err != nil || !maps.Equal(got, want) {
		t.Errorf("the driver got the configuration %q: %v", d.line, err)
	}
}

// The script stops the driver when a file changes, so that the kubelet starts
// the container again.
func TestCSIDriverStartsAgain(t *testing.T) {
	for hypervisor, file := range map[string]string{"vsphere": "cloud/csi-vsphere.conf", "zvirt": "ovirt/engine.yaml"} {
		for _, file := range []string{"tenant/value", "credentials/username", "credentials/password", filepath.Dir(file) + "/ca.crt", file} {
			t.Run(hypervisor+" "+file, func(t *testing.T) {
				d := startDriver(t, hypervisor, "echo started; exec sleep 60")
				if err := os.WriteFile(filepath.Join(d.folder, file), []byte("second"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := d.Wait(); err == nil || d.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
					t.Errorf("the script ended with %v, not because the driver was stopped", err)
				}
			})
		}
	}
}

// The driver gets the signal to stop, with time to end its sessions.
func TestCSIDriverIsStopped(t *testing.T) {
	for hypervisor := range controllers {
		d := startDriver(t, hypervisor, "trap 'exit 0' TERM; echo started; while true; do sleep 0.05; done")
		if err := d.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := d.Wait(); err != nil {
			t.Errorf("%s: the script ended with %v, not as the driver did", hypervisor, err)
		}
	}
}

// Every kind of site has one default class.
func TestOneDefaultClass(t *testing.T) {
	without := sites.Site{Hypervisor: "zvirt"}.Facts()
	without.Hypervisor.Spec = map[string]any{}
	for name, tc := range map[string]struct {
		facts *modules.Facts
		want  string
	}{
		"vSphere":                       {sites.Site{Hypervisor: "vsphere"}.Facts(), "vsphere-csi-node"},
		"zVirt":                         {sites.Site{Hypervisor: "zvirt"}.Facts(), "ovirt-storage-class"},
		"zVirt without storage domain":  {without, "local-path"},
		"a hypervisor without a driver": {sites.Site{Hypervisor: "docker"}.Facts(), "local-path"},
	} {
		rendering, err := modules.Render(content(t, Base), modules.Target{Namespace: "team", Name: "alpha", Set: Base, Origin: "team", Facts: tc.facts})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range rendering.Modules {
			if release, ok := m.Object.(*helmv2.HelmRelease); ok && strings.Contains(string(release.Spec.Values.Raw), `"defaultClass":true`) {
				got = append(got, m.Name)
			}
			for _, o := range delivered(t, m) {
				if o.GetAnnotations()["storageclass.kubernetes.io/is-default-class"] == "true" {
					got = append(got, m.Name)
				}
			}
		}
		if !slices.Equal(got, []string{tc.want}) {
			t.Errorf("%s has the default classes of %v, not of %s", name, got, tc.want)
		}
	}
}

// Without kube-proxy Calico would give a cluster without Services.
func TestCalicoNeedsKubeProxy(t *testing.T) {
	s := sites.Site{Hypervisor: "vsphere", KubeProxy: "none", Labels: map[string]string{"addons.cluster.x-k8s.io/cni": "calico"}}
	target := modules.Target{Namespace: "team", Name: "alpha", Set: Base, Origin: "team", Facts: s.Facts()}
	_, err := modules.Render(content(t, Base), target)
	if err == nil || !strings.HasPrefix(err.Error(), `module "calico": `) || !strings.HasSuffix(err.Error(), "Calico needs kube-proxy, and platform.kubeProxy.mode of the Cluster is none") {
		t.Errorf("Render() = %v, want an error of calico", err)
	}
	for _, allowed := range []sites.Site{{Hypervisor: "vsphere", KubeProxy: "none"}, {Hypervisor: "vsphere", KubeProxy: "ipvs", Labels: s.Labels}} {
		target.Facts = allowed.Facts()
		if _, err := modules.Render(content(t, Base), target); err != nil {
			t.Errorf("kube-proxy %s with the labels %v: %v", allowed.KubeProxy, allowed.Labels, err)
		}
	}
}

// A CSI driver on a Cluster of another hypervisor is refused with the module's name, before anything of the
// set is written: for instance in a copy of a set with another condition.
func TestCSIDriverNeedsItsHypervisor(t *testing.T) {
	for module, needs := range map[string]string{"vsphere-csi-node": "vSphere", "ovirt-csi-node": "zVirt or oVirt"} {
		c := content(t, Base)
		for i := range c.Modules {
			if c.Modules[i].Name == module {
				c.Modules[i].When = ""
			}
		}
		facts := named(t)["vsphere-internal-1"].Facts()
		facts.Hypervisor.Kind = "proxmox"
		_, err := modules.Render(c, modules.Target{Namespace: "team", Name: "alpha", Set: Base, Origin: "team", Facts: facts})
		want := fmt.Sprintf("module %q: ", module)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "it needs "+needs+", and the hypervisor of the Cluster is proxmox") {
			t.Errorf("Render() = %v, want an error of %s", err, module)
		}
	}
}
