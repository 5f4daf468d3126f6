package bootstrap

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// restoring is a machine that restores a snapshot.
func restoring(in *Input) {
	in.Restore = &Restore{
		Snapshot: "20260102t030405z", URL: "https://s3.example.org/b/a.db?X-Amz-Signature=abc", SHA256: strings.Repeat("0", 64), CA: []byte("authority\n"),
	}
}

// kubeadmDocument finds one of kubeadm's documents.
func kubeadmDocument(t *testing.T, in Input, kind string) map[string]any {
	t.Helper()
	for content := range strings.SplitSeq(configOf(t, render(t, in)).Join.Kubeadm, "---\n") {
		document := map[string]any{}
		if err := yaml.Unmarshal([]byte(content), &document); err != nil {
			t.Fatal(err)
		}
		if document["kind"] == kind {
			return document
		}
	}
	t.Fatalf("no %s", kind)
	return nil
}

func TestRestoreIsRendered(t *testing.T) {
	in := facts(Init, func(in *Input) {
		restoring(in)
		in.Spec.Kubeadm.IgnorePreflightErrors = []string{"SystemVerification"}
		in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{
			{Kind: "ClusterConfiguration", Patch: "etcd: {local: {dataDir: /data/etcd, imageTag: 3.6.9-0}}"},
			{Kind: "InitConfiguration", Patch: "nodeRegistration: {ignorePreflightErrors: [Swap]}"},
		}
	})
	got := configOf(t, render(t, in)).Join.Restore
	if got == nil || got.DataDir != "/data/etcd" || got.URL != in.Restore.URL || got.SHA256 != in.Restore.SHA256 || got.CA != "authority\n" ||
		!strings.Contains(got.ClusterConfiguration, "imageTag: 3.6.9-0") {
		t.Errorf("restore: %+v", got)
	}
	registration := kubeadmDocument(t, in, "InitConfiguration")["nodeRegistration"].(map[string]any)
	if got := registration["ignorePreflightErrors"]; len(got.([]any)) != 2 || got.([]any)[1] != "DirAvailable--data-etcd" {
		t.Errorf("a user's patch keeps kubeadm from going on: %v", got)
	}
	for _, mode := range []Mode{JoinControlPlane, JoinWorker} {
		if configOf(t, render(t, facts(mode, restoring))).Join.Restore != nil {
			t.Error("a machine that joins restores a snapshot")
		}
	}
}

// TestLocalEtcd renders the settings of the etcd member with the names of kubeadm.
func TestLocalEtcd(t *testing.T) {
	in := facts(Init, func(in *Input) {
		in.Etcd = controlplanev1.LocalEtcdSpec{
			DataDir: "/data/etcd", ImageRepository: "registry.example/etcd", ImageTag: "3.6.9-0",
			ExtraArgs: []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("8")}},
			ExtraEnvs: []bootstrapv1.EnvVar{{Name: "GOMAXPROCS", Value: ptr.To("2")}},
		}
	})
	want := map[string]any{"local": map[string]any{
		"dataDir": "/data/etcd", "imageRepository": "registry.example/etcd", "imageTag": "3.6.9-0",
		"extraArgs": []any{map[string]any{"name": "quota-backend-bytes", "value": "8"}},
		"extraEnvs": []any{map[string]any{"name": "GOMAXPROCS", "value": "2"}},
	}}
	if diff := cmp.Diff(want, kubeadmDocument(t, in, "ClusterConfiguration")["etcd"]); diff != "" {
		t.Errorf("etcd (-want +got)\n%s", diff)
	}
	for mode, wanted := range map[Mode]bool{Init: true, JoinControlPlane: true, JoinWorker: false} {
		in := facts(mode, func(in *Input) { in.Etcd.DataDir = "/data/etcd" })
		if made := configOf(t, render(t, in)).Machine.EtcdDir == "/data/etcd"; made != wanted {
			t.Errorf("%s: the directory is created: %v, want %v", mode, made, wanted)
		}
	}
}

func TestExternalEtcd(t *testing.T) {
	in := facts(Init, func(in *Input) { in.ExternalEtcd = []string{"https://etcd-0:2379", "https://etcd-1:2379"} })
	etcd := kubeadmDocument(t, in, "ClusterConfiguration")["etcd"].(map[string]any)
	again := in
	again.Restore = &Restore{}
	if configOf(t, render(t, again)).Join.Restore != nil {
		t.Error("a machine that initializes with the data of external etcd restores a snapshot")
	}
	external, is := etcd["external"].(map[string]any)
	if !is || etcd["local"] != nil {
		t.Fatalf("etcd: %v", etcd)
	}
	if len(external["endpoints"].([]any)) != 2 || external["caFile"] != etcdCAFile || external["certFile"] != etcdClientCertFile || external["keyFile"] != etcdClientKeyFile {
		t.Errorf("external: %v", external)
	}
}
