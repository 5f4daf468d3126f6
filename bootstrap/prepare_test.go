package bootstrap

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// testHash is the hash of a password.
const testHash = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/"

// equipped sets all fields of a NovaConfig about the machine itself.
func equipped(in *Input) {
	in.Spec.Taints = []bootstrapv1.Taint{
		{Key: "example.com/dedicated", Value: "gpu", Effect: "NoExecute"}, {Key: "slow", Effect: "PreferNoSchedule"},
	}
	in.Spec.Users = []bootstrapv1.User{
		{Name: "ops", SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA it's ops", "ssh-ed25519 BBBB"}, Groups: []string{"wheel", "adm"}, Sudo: "ALL=(ALL) NOPASSWD:ALL"},
		{Name: "backup", Shell: "/bin/sh", PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "passwords", Key: "backup"}},
	}
	in.PasswordHashes = map[string]string{"backup": testHash + "\n"}
	in.Spec.Partitions = []bootstrapv1.PartitionTable{{Device: "/dev/sdd", SizesMiB: []int32{1024, 0}}}
	in.Spec.Mounts = []bootstrapv1.Mount{
		{Source: "nas.example:/data", MountPath: "/mnt/data", Filesystem: "nfs4", MountOptions: []string{"ro", "vers=4.2"}},
		{Source: "tmpfs", MountPath: "/mnt/scratch", Filesystem: "tmpfs"},
	}
	in.Spec.Disks = []bootstrapv1.Disk{
		{Device: "/dev/sdb", MountPath: "/var/lib/etcd"},
		{Device: "/dev/sdc", Filesystem: "xfs", MountPath: "/var/lib/containerd", MountOptions: []string{"noatime", "nofail"}},
	}
	in.Spec.Swap = bootstrapv1.SwapSpec{SizeMiB: 1}
	in.Spec.Kernel = bootstrapv1.KernelSpec{
		Modules: []string{"ip_vs", "ip_vs_rr"},
		Sysctls: []bootstrapv1.Sysctl{{Name: "vm.nr_hugepages", Value: "64"}},
	}
	in.Spec.Containerd.Snippets = []bootstrapv1.ContainerdSnippet{{Name: "limits", Content: "version = 2\n[debug]\n  level = \"info\"\n"}}
	in.Spec.Files = []bootstrapv1.File{
		{Path: "/etc/encoded", Encoding: bootstrapv1.ContentEncodingBase64, Content: "aGVs\nbG8K\n"},
		{Path: "/etc/owned", Content: "ops'\n", Owner: "ops:adm"},
		{Path: "/etc/roots", Content: "root's\n", Owner: "root"},
		{Path: "/etc/packed", Encoding: bootstrapv1.ContentEncodingGzipBase64, Content: packed("hello\n")},
	}
}

// packed compresses content to reproducible bytes.
func packed(content string) string {
	out := &bytes.Buffer{}
	w := gzip.NewWriter(out)
	_, _ = w.Write([]byte(content))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

func TestMalformedEncodings(t *testing.T) {
	for name, file := range map[string]bootstrapv1.File{
		"is not base64":               {Encoding: bootstrapv1.ContentEncodingBase64, Content: "hunter2!"},
		"is not compressed with gzip": {Encoding: bootstrapv1.ContentEncodingGzipBase64, Content: "aHVudGVyMg=="},
	} {
		file.Path = "/etc/x"
		_, err := Render(facts(JoinWorker, func(in *Input) { in.Spec.Files = []bootstrapv1.File{file} }))
		if err == nil || err.Error() != "spec.files[/etc/x]: "+name {
			t.Errorf("err = %v, want %s", err, name)
		}
	}
}

// Only valid hashes of /etc/shadow are written to a node, and the error does
// not quote a rejected one.
func TestPasswordsAreHashed(t *testing.T) {
	for name, tc := range map[string]struct {
		hash  string
		taken bool
	}{
		"SHA512": {testHash, true}, "Yescrypt": {"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7", true},
		"Plain": {"hunter2", false}, "Empty": {"", false}, "MD5": {"$1$etNnh7FA$OlM7eljE/B7F1J4XYNnk81", false}, "Lines": {testHash + "\nroot:" + testHash, false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Users = []bootstrapv1.User{{Name: "ops", PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "passwords", Key: "ops"}}}
				in.PasswordHashes = map[string]string{"ops": tc.hash}
			}))
			if tc.taken != (err == nil) {
				t.Fatalf("err = %v", err)
			}
			if err == nil {
				if got := configOf(t, out).Machine.Users[0].PasswordHash; got != strings.TrimSpace(tc.hash) {
					t.Errorf("the user's hash is %q", got)
				}
				return
			}
			if !strings.HasPrefix(err.Error(), "spec.users[ops].passwordHashSecretRef: key ops of Secret passwords holds no hash") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("err = %v", err)
			}
		})
	}
}
