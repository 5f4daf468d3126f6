package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cut kills the script that runs it, as a reset does: without output.
const cut = "kill -9 $PPID"

// resetNode is a machine that was reset during its first boot and has
// restarted: files in memory are deleted.
func resetNode(t *testing.T, mode Mode, during string) *node {
	t.Helper()
	n := newNode(t, facts(mode, func(in *Input) {
		if during == "postKubeadmCommands" {
			in.Spec.PostKubeadmCommands = []string{cut}
		}
	}))
	if during == "kubeadm" {
		n.command("kubeadm", `[ "$1" = token ] || `+cut+"\n"+commands["kubeadm"])
	}
	n.command("vmware-rpctool", `printf '%s\n' "$*" >>"$T/reports"`)
	if n.boot() == nil {
		t.Fatal("nothing cut it off")
	}
	if !strings.Contains(n.read("units"), "enable nova-restarted.service") || n.read("etc/systemd/system/nova-restarted.service") != string(restartedUnit) {
		t.Error("nothing runs on the next boot")
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "run")); err != nil {
		t.Fatal(err)
	}
	n.write("reports", "")
	return n
}

func (n *node) there(path string) bool {
	_, err := os.Lstat(filepath.Join(n.dir, path))
	return err == nil
}

func TestResetIsReported(t *testing.T) {
	const (
		failed     = "nova: failed: The machine was restarted before it became a node || "
		unfinished = "nova: unfinished: The machine was restarted before its first boot was complete || "
		marker     = "var/lib/nova/booting/stage"
	)
	for name, tc := range map[string]struct {
		reason string
		mode   Mode
		during string
		// there lists the files, and enabled the units, after the restart.
		there   []string
		enabled string
		want    string
		// waits is true if another unit continues the bootstrap.
		waits bool
	}{
		"Worker":     {reason: "nothing continues the bootstrap", mode: JoinWorker, during: "kubeadm", enabled: "kubelet", want: failed},
		"WorkerNode": {reason: "its kubelet continues", mode: JoinWorker, during: "kubeadm", there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: unfinished},
		"WorkerWithoutKubelet": {
			reason: "its kubelet would go on, and is not started", mode: JoinWorker, during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, want: failed,
		},
		"ControlPlane": {
			reason: "a control plane takes more than a kubelet", mode: JoinControlPlane, during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: failed,
		},
		"Init": {
			reason: "kubeadm init writes kubelet.conf long before its end", mode: Init, during: "kubeadm",
			there: []string{"etc/kubernetes/kubelet.conf"}, enabled: "kubelet", want: failed,
		},
		"Member": {reason: "a machine after kubeadm is not reported as failed", mode: JoinControlPlane, during: "postKubeadmCommands", want: unfinished},
		"Kernel": {
			reason: "the script rebooted the machine", mode: JoinWorker, during: "kubeadm",
			there: []string{"var/lib/nova/first-boot"}, enabled: "nova-bootstrap", waits: true,
		},
		"KernelTooEarly": {
			reason: "it was to be, and came to it too early", mode: JoinWorker, during: "kubeadm",
			there: []string{"var/lib/nova/first-boot"}, want: failed,
		},
		"CloudInit": {
			reason: "cloud-init takes each boot for the first", mode: JoinWorker, during: "kubeadm",
			there: []string{"run/nova/bootstrap.sh"}, waits: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := resetNode(t, tc.mode, tc.during)
			n.write("etc/kubernetes/bootstrap-kubelet.conf", "")
			for _, path := range tc.there {
				n.write(path, "")
			}
			n.write("enabled", tc.enabled+"\n")
			if err := n.run("var/lib/nova/booting/restarted.sh"); err != nil {
				t.Fatal(err)
			}
			text := strings.TrimPrefix(n.read("reports"), "info-set guestinfo.nova.report ")
			if tc.waits != (text == "") || !strings.HasPrefix(text, tc.want) {
				t.Errorf("%s: reported %q, want %q", tc.reason, text, tc.want)
			}
			if !tc.waits && !strings.Contains(text, "Address 10.77.0.105 on eth1") {
				t.Errorf("the log is not reported: %q", text)
			}
			ended := strings.Contains(n.read("calls"), "disable --now kubelet.service") && !n.there("etc/kubernetes/bootstrap-kubelet.conf")
			if joins := n.there("etc/kubernetes/kubelet.conf") || tc.want != failed; ended == joins {
				t.Errorf("%s: the kubelet runs = %v", tc.reason, !ended)
			}
			if n.there(marker) != tc.waits || n.there("etc/systemd/system/nova-restarted.service") != tc.waits {
				t.Errorf("%s: expects another start = %v", tc.reason, !tc.waits)
			}
			if n.there("var/lib/nova/first-boot") && !tc.waits {
				t.Error("unused credentials stay on the disk")
			}
		})
	}
}

// The files that survive a reset contain no secrets.
func TestResetFindsNoCredentials(t *testing.T) {
	n := resetNode(t, JoinControlPlane, "kubeadm")
	entries, err := os.ReadDir(filepath.Join(n.dir, "var/lib/nova/booting"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if got := strings.Join(names, " "); got != "report.sh restarted.sh stage" {
		t.Errorf("left on the disk: %s", got)
	}
}

// A bootstrap that ended has reported its result already.
func TestResetIsNotExpectedAfterTheEnd(t *testing.T) {
	for name, commands := range map[string][]string{"Node": nil, "Failure": {"exit 3"}} {
		t.Run(name, func(t *testing.T) {
			n, _ := reported(t, "VMware, Inc.", commands...)
			if n.there("var/lib/nova/booting") || n.there("etc/systemd/system/nova-restarted.service") {
				t.Error("the next start would be reported as a failure")
			}
			if units := n.read("units"); units != "--quiet enable nova-restarted.service\n--quiet disable nova-restarted.service\n" {
				t.Errorf("systemctl %s", units)
			}
		})
	}
}
