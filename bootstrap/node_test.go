package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// The commands that the script calls on a node. Each records its arguments;
// sleep advances the machine's clock instead of waiting; kubeadm fails as often
// as the file fail-join states, prints the content of the file says, and leaves
// the files of a failed kubeadm.
var commands = map[string]string{
	"ip": `case "$*" in
*route*) [ "$1" = -4 ] && echo "default via 10.77.0.1 dev eth1 proto dhcp src 10.77.0.105 metric 1024" || echo "default via fe80::1 dev eth1" ;;
*"-4 -o address show dev eth2"*|*"-4 -o address show to 10.78.0.0/16"*) echo "3: eth2    inet 10.78.0.5/16 scope global eth2" ;;
*"-6 -o address show to fd01::/64"*) echo "3: eth2    inet6 fd01::5/64 scope global \       valid_lft forever" ;;
*"-4 -o address show dev eth1"*) echo "2: eth1    inet 10.77.0.105/24 metric 1024 brd 10.77.0.255 scope global dynamic eth1" ;;
*"-6 -o address show dev eth1"*) echo "2: eth1    inet6 fd00::9/64 scope global tentative \       valid_lft forever"
  echo "2: eth1    inet6 fd00::5/64 scope global \       valid_lft forever" ;;
esac`,
	"kubectl": `echo "kubectl $*" >>"$T/calls"; case "$*" in *"$(cat "$T/missing" 2>/dev/null || echo nothing)"*) exit 1 ;; esac`,
	"systemctl": `case "$*" in
is-enabled*) grep -q "${3%.service}" "$T/enabled" 2>/dev/null; exit ;;
*nova-restarted*) echo "$*" >>"$T/units" ;;
*) echo "systemctl $*" >>"$T/calls" ;;
esac`,
	"sync":    ":",
	"sleep":   `echo "sleep $*" >>"$T/sleeps"; echo "$(($(cut -d. -f1 "$T/proc/uptime") + $1)).50 1.00" >"$T/proc/uptime"`,
	"timeout": `echo "timeout $*" >>"$T/timeouts"; shift 2; exec "$@"`,
	"kubeadm": `[ "$1" = token ] && { echo 111111.2222222222222222; exit 0; }
echo "kubeadm $*" >>"$T/calls"
cp "$T/run/nova/kubeadm.yaml" "$T/kubeadm.yaml"
cp "$T/etc/kubernetes/manifests/kube-vip.yaml" "$T/kube-vip.meanwhile" 2>/dev/null || true
left=$(cat "$T/fail-join" 2>/dev/null || echo 0)
[ "$left" -eq 0 ] && exit 0
echo $((left - 1)) >"$T/fail-join"
cat "$T/says" 2>/dev/null
for f in $(cat "$T/leave"); do mkdir -p "$(dirname "$T/etc/kubernetes/$f")"; : >"$T/etc/kubernetes/$f"; done
exit 1`,
}

// node is a folder that the script uses as the root of a machine.
type node struct {
	t   *testing.T
	dir string
}

func newNode(t *testing.T, in Input) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	for name, body := range commands {
		n.command(name, body)
	}
	for path, content := range filesOf(t, render(t, in)) {
		n.write(path, content)
	}
	n.write("var/log/.keep", "")
	n.write("etc/systemd/system/.keep", "")
	n.write("proc/uptime", "100.50 1.00\n")
	n.write("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n")
	n.write("sys/class/dmi/id/product_uuid", "b2a13742-d4c3-f6e5-0102-030405060701\n")
	n.write("sys/class/dmi/id/product_serial", "VMware-42 37 a1 b2 c3 d4 e5 f6-01 02 03 04 05 06 07 01\n")
	return n
}

func (n *node) write(path, content string) {
	n.t.Helper()
	path = filepath.Join(n.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) read(path string) string {
	content, err := os.ReadFile(filepath.Join(n.dir, path))
	if err != nil {
		return ""
	}
	return string(content)
}

// boot runs the script with the machine's folders instead of the system's.
func (n *node) boot() error {
	n.t.Helper()
	for _, name := range []string{"run/nova/bootstrap.sh", "run/nova/report.sh", "run/nova/restarted.sh"} {
		script := n.read(name)
		for _, folder := range []string{"/run/", "/var/log/", "/var/lib/nova", "/var/lib/cloud", "/etc/cloud", "/etc/kubernetes", "/etc/os-release", "/etc/systemd/", "/sys/class/", "/proc/"} {
			script = strings.ReplaceAll(script, folder, n.dir+folder)
		}
		n.write(name, script)
	}
	return n.run("run/nova/bootstrap.sh")
}

// run runs a script of the machine.
func (n *node) run(script string) error {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), "sh", filepath.Join(n.dir, script))
	cmd.Env = []string{"PATH=" + filepath.Join(n.dir, "bin") + ":" + os.Getenv("PATH"), "T=" + n.dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return nil
}

const sentinel = "run/cluster-api/bootstrap-success.complete"

// cloud-init stores the user data on the disk, whole and in parts.
func TestNodeForgetsBootstrapData(t *testing.T) {
	const (
		instance = "var/lib/cloud/instances/iid-1/"
		disabled = "etc/cloud/cloud-init.disabled"
	)
	copies := []string{
		instance + "user-data.txt", instance + "user-data.txt.i", instance + "cloud-config.txt", instance + "vendor-data.txt", instance + "obj.pkl",
		"var/lib/cloud/seed/nocloud/user-data", "var/lib/cloud/seed/config_drive/openstack/latest/user_data",
	}
	kept := []string{instance + "sem/config_runcmd", instance + "scripts/runcmd", "var/lib/cloud/data/instance-id", "var/lib/cloud/seed/nocloud/meta-data"}
	for name, tc := range map[string]struct {
		reason  string
		change  func(*node)
		command string
		ends    bool
		forgets bool
	}{
		"Joined":      {reason: "the node has joined", ends: true, forgets: true},
		"Unfinished":  {reason: "it has joined, whatever fails then", command: "exit 3", forgets: true},
		"Restarted":   {reason: "a command starts the machine once more", command: cut, forgets: true},
		"NotJoined":   {reason: "another boot may go on", change: func(n *node) { n.write("fail-join", "99") }},
		"NoDirectory": {reason: "nothing is written by cloud-init then", change: func(n *node) { _ = os.RemoveAll(filepath.Join(n.dir, "var/lib/cloud")) }, ends: true},
		"NotDisabled": {
			reason: "cloud-init would write them again, or take the machine for a new one", ends: true,
			change: func(n *node) { n.write("etc/cloud", "in the way") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(JoinWorker, func(in *Input) {
				if tc.command != "" {
					in.Spec.PostKubeadmCommands = []string{tc.command}
				}
			}))
			for _, path := range append(copies, kept...) {
				n.write(path, "key of the authority")
			}
			if tc.change != nil {
				tc.change(n)
			}
			if err := n.boot(); (err == nil) != tc.ends {
				t.Fatalf("boot ended with %v\n%s", err, n.read("var/log/nova-bootstrap.log"))
			}
			if got := n.there(disabled); got != tc.forgets {
				t.Errorf("%s: cloud-init is disabled: %t", tc.reason, got)
			}
			for _, path := range copies {
				if got := !n.there(path); got != tc.forgets && name != "NoDirectory" {
					t.Errorf("%s: %s is deleted: %t", tc.reason, path, got)
				}
			}
			for _, path := range kept {
				if !n.there(path) && name != "NoDirectory" {
					t.Errorf("%s is deleted", path)
				}
			}
		})
	}
}

// TestNodeWaitsForClock: certificates are valid from a point in time, and the
// clock of a new machine may be wrong.
func TestNodeWaitsForClock(t *testing.T) {
	for name, tc := range map[string]struct {
		reason               string
		servers              []string
		timedatectl, kubectl string
		waits                int
		want                 string
	}{
		"Synchronized": {reason: "nothing to wait for", servers: []string{"ntp"}, timedatectl: "echo yes"},
		"Later": {
			reason: "kubeadm runs once the clock is right", servers: []string{"ntp"}, waits: 3,
			timedatectl: `echo x >>"$T/requests"; [ "$(wc -l <"$T/requests")" -lt 4 ] && echo no || echo yes`,
		},
		"Never": {
			reason: "the time servers may be wrong and the clock right", servers: []string{"ntp"}, timedatectl: "echo no", waits: 60,
		},
		"NeverAndFailed": {
			reason: "the report names the clock", servers: []string{"ntp"}, timedatectl: "echo no", kubectl: "exit 1", waits: -1,
			want: "rejects this machine; the clock is not synchronized with its time servers, it is at 20",
		},
		"NotValid": {
			reason: "the API server's certificate shows the wrong clock", timedatectl: "echo no", waits: -1,
			kubectl: "echo 'x509: certificate has expired or is not yet valid' >&2; exit 1",
			want:    "rejects this machine; its certificate or this machine's is not valid at 20",
		},
		"Unknown":    {reason: "no service reports the clock's state", servers: []string{"ntp"}, timedatectl: "exit 1"},
		"Unfollowed": {reason: "the image configures the clock", timedatectl: "echo no"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(JoinWorker, func(in *Input) { in.Platform.NTP.Servers = tc.servers }))
			n.command("timedatectl", tc.timedatectl)
			if tc.kubectl != "" {
				n.command("kubectl", "sleep 1500\n"+tc.kubectl)
			}
			err := n.boot()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if waits := strings.Count(n.read("sleeps"), "sleep 1\n"); tc.waits >= 0 && waits != tc.waits {
				t.Errorf("%s: waited %d s, want %d", tc.reason, waits, tc.waits)
			}
		})
	}
}

func TestNodeJoins(t *testing.T) {
	n := newNode(t, facts(JoinWorker, func(in *Input) {
		in.Spec.PreKubeadmCommands = []string{`echo "$NODE_NAME $NODE_IP $NODE_INTERFACE $PROVIDER_ID" >"$T/facts"`, "test -e $T/facts"}
		in.Spec.PostKubeadmCommands = []string{`test ! -e "$T/` + sentinel + `" && echo post >>"$T/calls"`}
	}))
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	if got, want := n.read("facts"), "blue-abc12 10.77.0.105 eth1 vsphere://4237a1b2-c3d4-e5f6-0102-030405060701\n"; got != want {
		t.Errorf("commands see %q, want %q", got, want)
	}
	config := n.read("kubeadm.yaml")
	if strings.Contains(config, "__NOVA") || !strings.Contains(config, "value: vsphere://4237a1b2-c3d4-e5f6-0102-030405060701") || !strings.Contains(config, "value: 10.77.0.105") {
		t.Errorf("kubeadm is given:\n%s", config)
	}
	calls := strings.Split(strings.TrimSpace(n.read("calls")), "\n")
	if last := calls[len(calls)-1]; last != "post" {
		t.Errorf("last call %q, want the command after kubeadm", last)
	}
	if n.read(sentinel) == "" {
		t.Error("no sentinel file")
	}
	if n.read("run/nova/discovery.conf") != "" || n.read("run/nova/client.key") != "" {
		t.Error("the credentials were left behind")
	}
}

// TestNodeAddress sees that the address is that of the interface or network in the spec.
func TestNodeAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, want string
		address      bootstrapv1.NodeAddressSpec
	}{
		"Interface": {reason: "the interface is named", address: bootstrapv1.NodeAddressSpec{Interface: "eth2"}, want: "10.78.0.5 eth2"},
		"CIDRs": {
			reason: "the first network with an address counts, in each family", want: "10.78.0.5,fd01::5 eth2",
			address: bootstrapv1.NodeAddressSpec{CIDRs: []string{"192.0.2.0/24", "fd01::/64", "10.78.0.0/16"}},
		},
		"None": {reason: "no interface has an address of the network", address: bootstrapv1.NodeAddressSpec{CIDRs: []string{"192.0.2.0/24"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(JoinWorker, func(in *Input) {
				in.Spec.NodeAddress = tc.address
				in.Spec.PreKubeadmCommands = []string{`echo "$NODE_IP $NODE_INTERFACE" >"$T/facts"`}
				if len(tc.address.CIDRs) > 1 {
					in.Network.Services = []string{"10.96.0.0/16", "fd00:2::/112"}
				}
			}))
			err := n.boot()
			if tc.want == "" {
				if err == nil || !strings.Contains(err.Error(), "no address on 192.0.2.0/24") {
					t.Errorf("%s: err = %v", tc.reason, err)
				}
				return
			}
			if got := strings.TrimSpace(n.read("facts")); err != nil || got != tc.want {
				t.Errorf("%s: got %q, want %q, err = %v", tc.reason, got, tc.want, err)
			}
		})
	}
}

func TestNodeInitializes(t *testing.T) {
	n := newNode(t, facts(Init, func(in *Input) {
		in.KubeVIP = &KubeVIP{Image: "x"}
		in.Network.Services = []string{"10.96.0.0/16", "fd00:2::/112"}
	}))
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	config := n.read("kubeadm.yaml")
	for _, want := range []string{"token: 111111.2222222222222222", "advertiseAddress: 10.77.0.105", "value: 10.77.0.105,fd00::5"} {
		if !strings.Contains(config, want) {
			t.Errorf("kubeadm is not given %q:\n%s", want, config)
		}
	}
	if pod := n.read("kube-vip.meanwhile"); !strings.Contains(pod, "value: eth1") || !strings.Contains(pod, "/super-admin.conf") {
		t.Errorf("kube-vip while kubeadm runs:\n%s", pod)
	}
	pod := n.read("etc/kubernetes/manifests/kube-vip.yaml")
	if want := strings.ReplaceAll(n.read("kube-vip.meanwhile"), "/super-admin.conf", "/admin.conf"); pod != want {
		t.Errorf("kube-vip after kubeadm:\n%s", pod)
	}
	if calls := n.read("calls"); strings.Contains(calls, "kubectl") || strings.Contains(calls, "join") {
		t.Errorf("the first machine waits or joins:\n%s", calls)
	}
}

func TestNodeProviderIDs(t *testing.T) {
	for name, tc := range map[string]struct{ vendor, uuid, serial, want string }{
		"VMwareNoSerial": {"VMware, Inc.", "4237A1B2-C3D4-E5F6-0102-030405060701", "None", "vsphere://4237a1b2-c3d4-e5f6-0102-030405060701"},
		"OVirt":          {"oVirt", "4237A1B2-C3D4-E5F6-0102-030405060701", "x", "zvirt://4237a1b2-c3d4-e5f6-0102-030405060701"},
		"Unknown":        {"Dell Inc.", "4237A1B2-C3D4-E5F6-0102-030405060701", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(JoinWorker, nil))
			n.write("sys/class/dmi/id/sys_vendor", tc.vendor+"\n")
			n.write("sys/class/dmi/id/product_uuid", tc.uuid+"\n")
			n.write("sys/class/dmi/id/product_serial", tc.serial+"\n")
			if err := n.boot(); err != nil {
				t.Fatal(err)
			}
			config := n.read("kubeadm.yaml")
			if tc.want == "" {
				if strings.Contains(config, "provider-id") || !strings.Contains(config, "node-ip") {
					t.Errorf("kubeadm is given:\n%s", config)
				}
				return
			}
			if !strings.Contains(config, "value: "+tc.want+"\n") {
				t.Errorf("want %s, kubeadm is given:\n%s", tc.want, config)
			}
		})
	}
}

func TestNodeStopsAtAFailedCommand(t *testing.T) {
	n := newNode(t, facts(JoinWorker, func(in *Input) { in.Spec.PreKubeadmCommands = []string{"exit 3", `echo more >>"$T/calls"`} }))
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "preKubeadmCommands 0000 failed with status 3") {
		t.Errorf("err = %v", err)
	}
	if calls := n.read("calls"); calls != "" || n.read(sentinel) != "" {
		t.Errorf("went on after the failure:\n%s", calls)
	}
}

func TestNodeWaitsNoLongerForKubeProxyThanItMust(t *testing.T) {
	n := newNode(t, facts(JoinWorker, nil))
	n.write("missing", "kube-proxy")
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	if waits := strings.Count(n.read("sleeps"), "sleep 1\n"); waits != 60 {
		t.Errorf("waited %d seconds, want 60", waits)
	}
	if !strings.Contains(n.read("calls"), "kubeadm join") {
		t.Error("never joined")
	}
}

func TestNodeJoinsAgain(t *testing.T) {
	controlPlane := []string{"pki/ca.crt", "manifests/kube-apiserver.yaml"}
	for name, tc := range map[string]struct {
		reason    string
		mode      Mode
		patch     string
		leave     []string
		skip      string
		stays     []string
		deleted   []string
		kubeletIs string
	}{
		"Worker": {
			reason: "a worker that got nowhere starts over", mode: JoinWorker,
			leave: []string{"bootstrap-kubelet.conf", "pki/ca.crt"}, deleted: []string{"bootstrap-kubelet.conf", "pki/ca.crt"}, kubeletIs: "stopped",
		},
		"WorkerWithCertificate": {
			reason: "a worker whose kubelet has its certificate only continues", mode: JoinWorker,
			leave: []string{"kubelet.conf", "pki/ca.crt"}, skip: "preflight,control-plane-prepare,kubelet-start", stays: []string{"kubelet.conf", "pki/ca.crt"},
		},
		"ControlPlaneEarly": {
			reason: "half of the manifests are written again, the CA stays", mode: JoinControlPlane,
			leave: controlPlane, stays: []string{"pki/ca.crt"}, deleted: []string{"manifests/kube-apiserver.yaml"}, kubeletIs: "stopped",
		},
		"ControlPlanePrepared": {
			reason: "complete manifests stay, etcd is joined again", mode: JoinControlPlane,
			leave: append(controlPlane, "manifests/kube-scheduler.yaml", "bootstrap-kubelet.conf"), skip: "preflight,control-plane-prepare",
			stays: []string{"manifests/kube-apiserver.yaml", "bootstrap-kubelet.conf"},
		},
		"UsersPhases": {
			reason: "phases that the user leaves out stay out", mode: JoinWorker, patch: "skipPhases: [preflight/x]",
			leave: []string{"kubelet.conf"}, skip: "preflight,control-plane-prepare,kubelet-start,preflight/x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(tc.mode, func(in *Input) {
				if tc.patch != "" {
					in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "JoinConfiguration", Patch: tc.patch}}
				}
			}))
			n.write("fail-join", "1")
			n.write("leave", strings.Join(tc.leave, " "))
			if err := n.boot(); err != nil {
				t.Fatal(err)
			}
			calls := strings.Split(strings.TrimSpace(n.read("calls")), "\n")
			second := calls[len(calls)-1]
			if tc.skip != "" {
				if want := "--skip-phases=" + tc.skip; !strings.HasSuffix(second, want) {
					t.Errorf("%s: %q, want %q", tc.reason, second, want)
				}
			} else if strings.Contains(second, "--skip-phases") {
				t.Errorf("%s: %q skips", tc.reason, second)
			}
			n.checkLeft(tc.reason, tc.stays, tc.deleted)
			if stopped := strings.Contains(n.read("calls"), "systemctl stop kubelet"); stopped != (tc.kubeletIs == "stopped") {
				t.Errorf("%s: kubelet stopped = %v", tc.reason, stopped)
			}
		})
	}
}

func (n *node) checkLeft(reason string, stays, goes []string) {
	n.t.Helper()
	for _, file := range stays {
		if _, err := os.Stat(filepath.Join(n.dir, "etc/kubernetes", file)); err != nil {
			n.t.Errorf("%s: %v", reason, err)
		}
	}
	for _, file := range goes {
		if _, err := os.Stat(filepath.Join(n.dir, "etc/kubernetes", file)); err == nil {
			n.t.Errorf("%s: %s is still there", reason, file)
		}
	}
}

// initialized lists the files that exist after kubeadm init if only the last
// phases are left.
const initialized = "pki/ca.key kubelet.conf manifests/etcd.yaml manifests/kube-apiserver.yaml manifests/kube-controller-manager.yaml manifests/kube-scheduler.yaml"

func TestNodeInitializesAgain(t *testing.T) {
	const first = "kubeadm init --config "
	for name, tc := range map[string]struct {
		reason string
		patch  string
		leave  string
		says   string
		fails  string
		// skips of the kubeadm calls, in order.
		skips  []string
		failed string
	}{
		"Tail": {
			reason: "CAs and etcd are not created again", leave: initialized, fails: "2",
			says:  "error: error execution phase addon/coredns: couldn't retrieve DNS addon deployments",
			skips: []string{"", "preflight,certs,kubeconfig,etcd,control-plane", "preflight,certs,kubeconfig,etcd,control-plane"},
		},
		"Killed": {
			reason: "kubeadm may end without an error message", leave: initialized, fails: "1",
			skips: []string{"", "preflight,certs,kubeconfig,etcd,control-plane"},
		},
		"UsersPhases": {
			reason: "phases that the user leaves out stay out", leave: initialized, fails: "1", patch: "skipPhases: [addon/coredns]",
			skips: []string{"", "preflight,certs,kubeconfig,etcd,control-plane,addon/coredns"},
		},
		"HalfOfTheFiles": {
			reason: "without a complete control plane another machine must try", leave: "kubelet.conf manifests/kube-apiserver.yaml", fails: "1",
			skips: []string{""}, failed: "kubeadm init failed after 0 min",
		},
		"Never": {
			reason: "an API server that did not come up is not waited for once more", leave: initialized, fails: "1",
			says:  "error: error execution phase wait-control-plane: failed while waiting for the control plane to start",
			skips: []string{""}, failed: "kubeadm init failed after 0 min",
		},
		"Again": {
			reason: "it ends", leave: initialized, fails: "99", says: "error: error execution phase addon/coredns: forbidden",
			skips:  append([]string{""}, slices.Repeat([]string{"preflight,certs,kubeconfig,etcd,control-plane"}, 9)...),
			failed: "kubeadm init did not succeed within 1 min, in 10 attempts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(Init, func(in *Input) {
				if tc.patch != "" {
					in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "InitConfiguration", Patch: tc.patch}}
				}
			}))
			n.write("fail-join", tc.fails)
			n.write("leave", tc.leave)
			n.write("says", tc.says+"\n")
			err := n.boot()
			if tc.failed == "" && err != nil || tc.failed != "" && (err == nil || !strings.Contains(err.Error(), tc.failed+";")) {
				t.Errorf("%s: err = %v, want %q", tc.reason, err, tc.failed)
			}
			if done := n.read(sentinel) != ""; done != (tc.failed == "") {
				t.Errorf("%s: claims success = %v", tc.reason, done)
			}
			var skips []string
			for line := range strings.Lines(n.read("calls")) {
				if strings.HasPrefix(line, first) {
					_, skip, _ := strings.Cut(strings.TrimSpace(line), "--skip-phases=")
					skips = append(skips, skip)
				}
			}
			if !slices.Equal(skips, tc.skips) {
				t.Errorf("%s: kubeadm init skips %q, want %q", tc.reason, skips, tc.skips)
			}
			n.checkLeft(tc.reason, strings.Fields(tc.leave), nil)
			if strings.Contains(n.read("calls"), "systemctl stop kubelet") {
				t.Errorf("%s: the kubelet was stopped", tc.reason)
			}
		})
	}
}

// A slow init is not repeated after the machine's timeout.
func TestNodeStopsInitializingInTime(t *testing.T) {
	n := newNode(t, facts(Init, nil))
	n.write("fail-join", "99")
	n.write("leave", initialized)
	n.command("kubeadm", `[ "$1" = token ] || sleep 1500`+"\n"+commands["kubeadm"])
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "kubeadm init did not succeed within 75 min, in 3 attempts") {
		t.Errorf("err = %v", err)
	}
}

func TestNodeGivesUp(t *testing.T) {
	n := newNode(t, facts(JoinWorker, nil))
	n.write("fail-join", "99")
	n.write("leave", "")
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "kubeadm join failed 10 times") {
		t.Errorf("err = %v", err)
	}
	if n.read(sentinel) != "" {
		t.Error("claims success")
	}
}

func TestNodeStopsTryingInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		mode   Mode
		// timeout is how long the machine may wait for its cluster.
		timeout time.Duration
		// slow is a command that takes 25 minutes each time, and fails.
		slow    string
		leave   string
		want    string
		waited  time.Duration
		stopped bool
	}{
		"NoCluster": {
			reason: "a control plane machine stops waiting after its timeout", mode: JoinControlPlane, slow: "kubectl",
			want:   "This machine could not join the cluster within 75 min: https://10.77.0.10:6443 does not respond, or rejects this machine",
			waited: time.Hour,
		},
		"PatientWorker": {
			reason: "a worker waits as long as its credential is good for", mode: JoinWorker, timeout: 2 * time.Hour, slow: "kubectl",
			want: "could not join the cluster within 125 min", waited: 2 * time.Hour,
		},
		"Slow": {
			reason: "attempts that take long are not begun any more", mode: JoinControlPlane, slow: "kubeadm",
			want: "kubeadm join did not succeed within 75 min, in 3 attempts", waited: time.Hour, stopped: true,
		},
		"SlowNode": {
			reason: "the kubelet of a machine that is a node keeps running", mode: JoinControlPlane, slow: "kubeadm", leave: "kubelet.conf",
			want: "kubeadm join did not succeed within 75 min, in 3 attempts", waited: time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(tc.mode, func(in *Input) { in.ClusterTimeout = tc.timeout }))
			n.write("fail-join", "99")
			n.write("leave", tc.leave)
			n.command(tc.slow, "sleep 1500\n"+commands[tc.slow]+"\nexit 1")
			err := n.boot()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: err = %v", tc.reason, err)
			}
			var now float64
			if _, err := fmt.Sscanf(n.read("proc/uptime"), "%f", &now); err != nil || now < tc.waited.Seconds() {
				t.Errorf("%s: gave up at %v: %v", tc.reason, now, err)
			}
			if stopped := strings.HasSuffix(n.read("calls"), "systemctl stop kubelet\n"); stopped != tc.stopped {
				t.Errorf("%s: kubelet stopped in the end = %v", tc.reason, stopped)
			}
			if n.read(sentinel) != "" {
				t.Error("claims success")
			}
		})
	}
}

// kubeadm is stopped at the deadline.
func TestNodeBoundsKubeadm(t *testing.T) {
	n := newNode(t, facts(JoinControlPlane, nil))
	n.write("fail-join", "1")
	n.write("leave", "")
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	var bounds []string
	for line := range strings.Lines(n.read("timeouts")) {
		bounds = append(bounds, strings.Join(strings.Fields(line)[:4], " "))
	}
	if want := []string{"timeout --kill-after=10 3600 kubeadm", "timeout --kill-after=10 3590 kubeadm"}; !slices.Equal(bounds, want) {
		t.Errorf("kubeadm is run with %q, want %q", bounds, want)
	}
}
