package boot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/boot"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// commands are those that the agent calls on a node. kubeadm fails as often as
// the file fail-join states, prints the content of the file output, and leaves the
// files of a failed kubeadm.
var commands = map[string]string{
	"ip": `case "$*" in
*"-4 route"*) echo '[{"dst":"default","gateway":"10.77.0.1","dev":"eth1","protocol":"dhcp"}]' ;;
*"-6 route"*) echo '[{"dst":"default","nexthops":[{"gateway":"fe80::1","dev":"eth1"},{"gateway":"fe80::2","dev":"eth2"}]}]' ;;
*"-4 address show scope global dev eth2"*|*"-4 address show scope global to 10.78.0.0/16"*) echo '[{},{"ifname":"eth2","addr_info":[{"family":"inet","local":"10.78.0.5","prefixlen":16}]}]' ;;
*"-6 address show scope global to fd01::/64"*) echo '[{"ifname":"eth2","addr_info":[{"local":"fd01::5"}]}]' ;;
*"-4 address show scope global dev eth1"*) echo '[{"ifname":"eth1","addr_info":[{"local":"10.77.0.105","dynamic":true}]}]' ;;
*"-6 address show scope global dev eth1"*) echo '[{"ifname":"eth1","addr_info":[{"local":"fd00::9","tentative":true},{"local":"fd00::8","temporary":true},{"local":"fd00::5"}]}]' ;;
*) echo '[]' ;;
esac`,
	"systemctl": `case "$*" in
is-enabled*) grep -q "${3%.service}" "$T/enabled" 2>/dev/null; exit ;;
is-active*) exit 3 ;;
*nova-restarted*) echo "$*" >>"$T/units" ;;
*) echo "systemctl $*" >>"$T/calls" ;;
esac`,
	"kubeadm": `[ "$1" = token ] && { echo 111111.2222222222222222; exit 0; }
echo "kubeadm $*" >>"$T/calls"
cp "$T/run/nova/kubeadm.yaml" "$T/kubeadm.yaml"
cp "$T/etc/kubernetes/manifests/kube-vip.yaml" "$T/kube-vip.meanwhile" 2>/dev/null || true
readlink "$T/etc/kubernetes/kube-vip.conf" > "$T/kube-vip.link" || true
left=$(cat "$T/fail-join" 2>/dev/null || echo 0)
[ "$left" -eq 0 ] && exit 0
echo $((left - 1)) >"$T/fail-join"
cat "$T/output" 2>/dev/null
for f in $(cat "$T/leave"); do mkdir -p "$(dirname "$T/etc/kubernetes/$f")"; : >"$T/etc/kubernetes/$f"; done
exit 1`,
}

// kubeadmConfig is a configuration of kubeadm with all variables.
const kubeadmConfig = `token: __NOVA_TOKEN__
advertiseAddress: __NOVA_ADVERTISE_ADDRESS__
kubeletExtraArgs:
- name: node-ip
  value: __NOVA_NODE_IP__
- name: provider-id
  value: __NOVA_PROVIDER_ID__
`

// apiServer is an API server that has the ConfigMaps of a cluster, except for
// those in missing. Each request takes the given time of the machine's clock.
type apiServer struct {
	*agenttest.Server
	lock     sync.Mutex
	missing  []string
	slow     func()
	requests []string
	// certificates are certificate requests, if it has any.
	certificates *agenttest.Requests
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		if s.certificates != nil && s.certificates.Serve(w, r) {
			return
		}
		if s.slow != nil {
			s.slow()
		}
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if slices.Contains(s.missing, name) || slices.Contains(s.missing, "*") {
			agenttest.Fail(w, http.StatusNotFound, "NotFound")
			return
		}
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": name}})
	})
	return s
}

// node is a machine with the configuration of a node.
type node struct {
	*agenttest.Machine
	t   *testing.T
	api *apiServer
}

func newNode(t *testing.T, change func(*nodeconfig.Config)) *node {
	t.Helper()
	n := &node{Machine: agenttest.New(t, commands), t: t, api: newAPIServer(t)}
	config := &nodeconfig.Config{
		Node: nodeconfig.Node{Name: "blue-abc12", IPVersions: []int{4}},
		Join: nodeconfig.Join{
			Endpoint: "https://10.77.0.10:6443", Kubeadm: kubeadmConfig, Kubeconfig: n.api.Kubeconfig(), KubeProxy: true,
			ClusterSeconds: 3600, JoinSeconds: 3600,
		},
	}
	if change != nil {
		change(config)
	}
	content, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	n.Put("run/nova/config.json", string(content))
	n.Put("etc/systemd/system/.keep", "")
	return n
}

func (n *node) boot() error {
	n.t.Helper()
	return boot.Run(n.t.Context(), n.Machine.Machine)
}

func (n *node) log() string { return n.Get(boot.Log) }

// initializes makes the node the first one of its cluster.
func initializes(c *nodeconfig.Config) {
	c.Node.ControlPlane, c.Join.Init, c.Join.Kubeconfig = true, true, ""
}

func joinsControlPlane(c *nodeconfig.Config) { c.Node.ControlPlane = true }

const sentinel = "run/cluster-api/bootstrap-success.complete"

func TestNodeJoins(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) {
		c.Join.Before = []string{`echo "$NODE_NAME $NODE_IP $NODE_INTERFACE $PROVIDER_ID" >"$T/facts"`, "test -e $T/facts"}
		c.Join.After = []string{`test ! -e "$T/` + sentinel + `" && echo post >>"$T/calls"`}
	})
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if got, want := n.Get("facts"), "blue-abc12 10.77.0.105 eth1 vsphere://4237a1b2-c3d4-e5f6-0102-030405060701\n"; got != want {
		t.Errorf("commands see %q, want %q", got, want)
	}
	config := n.Get("kubeadm.yaml")
	if strings.Contains(config, "__NOVA") || !strings.Contains(config, "value: vsphere://4237a1b2-c3d4-e5f6-0102-030405060701") || !strings.Contains(config, "value: 10.77.0.105") {
		t.Errorf("kubeadm is given:\n%s", config)
	}
	calls := strings.Split(strings.TrimSpace(n.Get("calls")), "\n")
	if last := calls[len(calls)-1]; last != "post" {
		t.Errorf("last call %q, want the command after kubeadm", last)
	}
	if n.Get(sentinel) == "" {
		t.Error("no sentinel file")
	}
	for _, file := range []string{"run/nova/discovery.conf", "run/nova/config.json", "run/nova/kubeadm.yaml", "run/nova/command"} {
		if n.There(file) {
			t.Errorf("%s was left behind", file)
		}
	}
}

// TestNodeAddress sees that the address is that of the interface or network in the spec.
func TestNodeAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, want string
		node         nodeconfig.Node
	}{
		"Interface": {reason: "the interface is named", node: nodeconfig.Node{Interface: "eth2"}, want: "10.78.0.5 eth2"},
		"CIDRs": {
			reason: "the first network with an address counts, in each family", want: "10.78.0.5,fd01::5 eth2",
			node: nodeconfig.Node{IPVersions: []int{4, 6}, CIDRs: []string{"192.0.2.0/24", "fd01::/64", "10.78.0.0/16"}},
		},
		"DualStack": {reason: "an address that is not permanent is skipped", node: nodeconfig.Node{IPVersions: []int{6, 4}}, want: "fd00::5,10.77.0.105 eth1"},
		"None":      {reason: "no interface has an address of the network", node: nodeconfig.Node{CIDRs: []string{"192.0.2.0/24"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) {
				tc.node.Name = c.Node.Name
				if len(tc.node.IPVersions) == 0 {
					tc.node.IPVersions = []int{4}
				}
				c.Node = tc.node
				c.Join.Before = []string{`echo "$NODE_IP $NODE_INTERFACE" >"$T/facts"`}
			})
			err := n.boot()
			if tc.want == "" {
				if err == nil || !strings.Contains(err.Error(), "no address on 192.0.2.0/24") || n.Waits(time.Second) != 300 {
					t.Errorf("%s: err = %v after %d s", tc.reason, err, n.Waits(time.Second))
				}
				return
			}
			if got := strings.TrimSpace(n.Get("facts")); err != nil || got != tc.want {
				t.Errorf("%s: got %q, want %q, err = %v", tc.reason, got, tc.want, err)
			}
		})
	}
}

func TestNodeInitializes(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) {
		initializes(c)
		c.Node.IPVersions = []int{4, 6}
		c.Join.KubeVIP = "value: __NOVA_INTERFACE__\npath: /etc/kubernetes/super-admin.conf\n"
	})
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	config := n.Get("kubeadm.yaml")
	for _, want := range []string{"token: 111111.2222222222222222", "advertiseAddress: 10.77.0.105", "value: 10.77.0.105,fd00::5"} {
		if !strings.Contains(config, want) {
			t.Errorf("kubeadm is not given %q:\n%s", want, config)
		}
	}
	pod := n.Get("kube-vip.meanwhile")
	if !strings.Contains(pod, "value: eth1") || !strings.Contains(pod, "path: /etc/kubernetes/kube-vip.conf") {
		t.Errorf("kube-vip while kubeadm runs:\n%s", pod)
	}
	if after := n.Get("etc/kubernetes/manifests/kube-vip.yaml"); after != pod {
		t.Errorf("kubeadm init is followed by another manifest, for which the kubelet stops kube-vip:\n%s", after)
	}
	if link := n.Get("kube-vip.link"); link != "super-admin.conf\n" {
		t.Errorf("while kubeadm runs, kube-vip uses %q", link)
	}
	if link, err := os.Readlink(n.At("etc/kubernetes/kube-vip.conf")); err != nil || link != "admin.conf" {
		t.Errorf("after kubeadm, kube-vip uses %q: %v", link, err)
	}
	if calls := n.Get("calls"); len(n.api.requests) > 0 || strings.Contains(calls, "join") {
		t.Errorf("the first machine waits or joins:\n%s", calls)
	}
}

// withoutKeys is a control plane machine without keys of CAs, and the requests of its
// cluster.
func withoutKeys(t *testing.T, change func(*nodeconfig.Config)) (*node, *agenttest.Requests) {
	t.Helper()
	n := newNode(t, func(c *nodeconfig.Config) {
		c.Node.ControlPlane = true
		c.Certificates = &nodeconfig.Certificates{Endpoint: "https://10.77.0.10:6443", Port: 6443, ValiditySeconds: 3600}
		change(c)
	})
	signers := map[string]*agenttest.CA{}
	for _, a := range certificates.Authorities() {
		signers[a.Signer()] = agenttest.NewCA(t, string(a))
		n.Put("etc/kubernetes/pki/"+a.File(), signers[a.Signer()].PEM())
	}
	n.api.certificates = agenttest.NewRequests(t, signers)
	return n, n.api.certificates
}

// A control plane machine without keys of CAs requests its certificates before kubeadm runs.
func TestNodeRequestsCertificates(t *testing.T) {
	n, requests := withoutKeys(t, func(*nodeconfig.Config) {})
	n.Command("kubeadm", `cp "$T/etc/kubernetes/pki/apiserver.crt" "$T/meanwhile.crt"`+"\n"+commands["kubeadm"])
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if requests.Count() != len(certificates.Of(false, false)) || n.Get("meanwhile.crt") == "" {
		t.Errorf("kubeadm ran after %d requests", requests.Count())
	}
}

func TestNodeWithoutCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*nodeconfig.Config)
		denied string
		made   string
		want   string
		runs   bool
	}{
		"Denied": {change: func(*nodeconfig.Config) {}, denied: "apiserver", want: "was refused: not this one"},
		"NoVault": {
			change: func(c *nodeconfig.Config) {
				initializes(c)
				c.Vault = &nodeconfig.Vault{Server: "https://127.0.0.1:1", AuthPath: "nova-nodes", WrappedSecretID: "s3cret"}
			},
			want: "signing in to StarVault: the server does not respond",
		},
		"MadeByKubeadm": {change: func(*nodeconfig.Config) {}, made: "etcd/ca.key", want: "the machine had keys of CAs, which it must not have: /etc/kubernetes/pki/etcd/ca.key", runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, requests := withoutKeys(t, tc.change)
			requests.Denied = tc.denied
			if tc.made != "" {
				n.Command("kubeadm", `: >"$T/etc/kubernetes/pki/`+tc.made+`"`+"\n"+commands["kubeadm"])
			}
			err := n.boot()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if runs := strings.Contains(n.Get("calls"), "kubeadm"); runs != tc.runs {
				t.Errorf("kubeadm ran: %t", runs)
			}
			if n.There("etc/kubernetes/pki/etcd/ca.key") || strings.Contains(n.log(), "s3cret") {
				t.Error("a credential is left")
			}
		})
	}
}

func TestNodeProviderIDs(t *testing.T) {
	for name, tc := range map[string]struct{ vendor, uuid, serial, want string }{
		"VMwareNoSerial": {"VMware, Inc.", "4237A1B2-C3D4-E5F6-0102-030405060701", "None", "vsphere://4237a1b2-c3d4-e5f6-0102-030405060701"},
		"OVirt":          {"oVirt", "4237A1B2-C3D4-E5F6-0102-030405060701", "x", "zvirt://4237a1b2-c3d4-e5f6-0102-030405060701"},
		"Proxmox":        {"Proxmox", "4237A1B2-C3D4-E5F6-0102-030405060701", "x", "proxmox://4237a1b2-c3d4-e5f6-0102-030405060701"},
		"Unknown":        {"Dell Inc.", "4237A1B2-C3D4-E5F6-0102-030405060701", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.Put("etc/os-release", "NAME=x\n")
			n.Hardware(tc.vendor, tc.uuid, tc.serial)
			if err := n.boot(); err != nil {
				t.Fatal(err)
			}
			config := n.Get("kubeadm.yaml")
			if tc.want == "" {
				if strings.Contains(config, "provider-id") || strings.Contains(config, "PROVIDER_ID") || !strings.Contains(config, "node-ip") {
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
	n := newNode(t, func(c *nodeconfig.Config) { c.Join.Before = []string{"exit 3", `echo more >>"$T/calls"`} })
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "preKubeadmCommands 0000 failed with status 3") {
		t.Errorf("err = %v", err)
	}
	if calls := n.Get("calls"); calls != "" || n.Get(sentinel) != "" {
		t.Errorf("went on after the failure:\n%s", calls)
	}
}

// A configuration of a newer manager may have settings that this agent does not
// know: it must not leave them out.
func TestNodeRejectsAnotherConfiguration(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"Version": {`{"version":2,"node":{"name":"x"}}`, "has version 2, this host agent reads version 1"},
		"Field":   {`{"version":1,"node":{"name":"x"},"surprise":true}`, `unknown field "surprise"`},
		"Cut":     {`{"version":1,"node":{`, "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.Command("vmware-rpctool", `printf '%s\n' "$*" >>"$T/reports"`)
			n.Put("run/nova/config.json", tc.content)
			if err := n.boot(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v", err)
			}
			if got := n.Get("reports"); !strings.Contains(got, "nova: failed: ") || !strings.Contains(got, tc.want) {
				t.Errorf("reported %q", got)
			}
		})
	}
}

func TestNodeWaitsNoLongerForKubeProxyThanItMust(t *testing.T) {
	for name, tc := range map[string]struct {
		kubeProxy bool
		waits     int
	}{"Skipped": {true, 60}, "None": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) { c.Join.KubeProxy = tc.kubeProxy })
			n.api.missing = []string{"kube-proxy"}
			if err := n.boot(); err != nil {
				t.Fatal(err)
			}
			if waits := n.Waits(time.Second); waits != tc.waits {
				t.Errorf("waited %d seconds, want %d", waits, tc.waits)
			}
			if !strings.Contains(n.Get("calls"), "kubeadm join") {
				t.Error("never joined")
			}
		})
	}
}

// TestNodeWaitsForClock: certificates are valid from a point in time, and the
// clock of a new machine may be wrong.
func TestNodeWaitsForClock(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		servers     []string
		timedatectl string
		unreachable bool
		waits       int
		want        string
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
			reason: "the report names the clock", servers: []string{"ntp"}, timedatectl: "echo no", unreachable: true, waits: -1,
			want: "rejects this machine; the clock is not synchronized with its time servers, it is at 20",
		},
		"Unknown":    {reason: "no service reports the clock's state", servers: []string{"ntp"}, timedatectl: "exit 1"},
		"Unfollowed": {reason: "the image configures the clock", timedatectl: "echo no"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) { c.Machine.TimeServers = tc.servers })
			n.Command("timedatectl", tc.timedatectl)
			n.Command("vmware-rpctool", `printf '%s\n' "$*" >>"$T/reports"`)
			if tc.unreachable {
				n.api.missing = []string{"*"}
				n.api.slow = func() { n.Put("proc/uptime", fmt.Sprintf("%.2f 1.00\n", n.Seconds()+600)) }
			}
			err := n.boot()
			if (err == nil) != (tc.want == "") || !strings.Contains(n.Get("reports"), tc.want) {
				t.Fatalf("%s: got %v, reported %s", tc.reason, err, n.Get("reports"))
			}
			if waits := n.Waits(time.Second); tc.waits >= 0 && waits != tc.waits {
				t.Errorf("%s: waited %d s, want %d", tc.reason, waits, tc.waits)
			}
		})
	}
}

func TestNodeJoinsAgain(t *testing.T) {
	controlPlane := []string{"pki/ca.crt", "manifests/kube-apiserver.yaml"}
	for name, tc := range map[string]struct {
		reason    string
		change    func(*nodeconfig.Config)
		leave     []string
		skip      string
		stays     []string
		deleted   []string
		kubeletIs string
	}{
		"Worker": {
			reason: "a worker that got nowhere starts over",
			leave:  []string{"bootstrap-kubelet.conf", "pki/ca.crt"}, deleted: []string{"bootstrap-kubelet.conf", "pki/ca.crt"}, kubeletIs: "stopped",
		},
		"WorkerWithCertificate": {
			reason: "a worker whose kubelet has its certificate only continues",
			leave:  []string{"kubelet.conf", "pki/ca.crt"}, skip: "preflight,control-plane-prepare,kubelet-start", stays: []string{"kubelet.conf", "pki/ca.crt"},
		},
		"ControlPlaneEarly": {
			reason: "half of the manifests are written again, the CA stays", change: joinsControlPlane,
			leave: controlPlane, stays: []string{"pki/ca.crt"}, deleted: []string{"manifests/kube-apiserver.yaml"}, kubeletIs: "stopped",
		},
		"ControlPlanePrepared": {
			reason: "complete manifests stay, etcd is joined again", change: joinsControlPlane,
			leave: append(controlPlane, "manifests/kube-scheduler.yaml", "bootstrap-kubelet.conf"), skip: "preflight,control-plane-prepare",
			stays: []string{"manifests/kube-apiserver.yaml", "bootstrap-kubelet.conf"},
		},
		"UsersPhases": {
			reason: "phases that the user leaves out stay out", change: func(c *nodeconfig.Config) { c.Join.SkipPhases = []string{"preflight/x"} },
			leave: []string{"kubelet.conf"}, skip: "preflight,control-plane-prepare,kubelet-start,preflight/x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tc.change)
			n.Put("fail-join", "1")
			n.Put("leave", strings.Join(tc.leave, " "))
			if err := n.boot(); err != nil {
				t.Fatal(err)
			}
			calls := strings.Split(strings.TrimSpace(n.Get("calls")), "\n")
			second := calls[len(calls)-1]
			if tc.skip != "" {
				if want := "--skip-phases=" + tc.skip; !strings.HasSuffix(second, want) {
					t.Errorf("%s: %q, want %q", tc.reason, second, want)
				}
			} else if strings.Contains(second, "--skip-phases") {
				t.Errorf("%s: %q skips", tc.reason, second)
			}
			n.checkLeft(tc.reason, tc.stays, tc.deleted)
			if stopped := strings.Contains(n.Get("calls"), "systemctl stop kubelet"); stopped != (tc.kubeletIs == "stopped") {
				t.Errorf("%s: kubelet stopped = %v", tc.reason, stopped)
			}
		})
	}
}

func (n *node) checkLeft(reason string, stays, goes []string) {
	n.t.Helper()
	for _, file := range stays {
		if !n.There("etc/kubernetes/" + file) {
			n.t.Errorf("%s: %s is deleted", reason, file)
		}
	}
	for _, file := range goes {
		if n.There("etc/kubernetes/" + file) {
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
		phases []string
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
			reason: "phases that the user leaves out stay out", leave: initialized, fails: "1", phases: []string{"addon/coredns"},
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
			n := newNode(t, func(c *nodeconfig.Config) {
				initializes(c)
				c.Join.SkipPhases = tc.phases
			})
			n.Put("fail-join", tc.fails)
			n.Put("leave", tc.leave)
			n.Put("output", tc.says+"\n")
			err := n.boot()
			if tc.failed == "" && err != nil || tc.failed != "" && (err == nil || err.Error() != tc.failed) {
				t.Errorf("%s: err = %v, want %q", tc.reason, err, tc.failed)
			}
			if done := n.Get(sentinel) != ""; done != (tc.failed == "") {
				t.Errorf("%s: claims success = %v", tc.reason, done)
			}
			var skips []string
			for line := range strings.Lines(n.Get("calls")) {
				if strings.HasPrefix(line, first) {
					_, skip, _ := strings.Cut(strings.TrimSpace(line), "--skip-phases=")
					if len(skips) == 0 && len(tc.phases) > 0 {
						skip = "" // kubeadm's document has them, too
					}
					skips = append(skips, skip)
				}
			}
			if !slices.Equal(skips, tc.skips) {
				t.Errorf("%s: kubeadm init skips %q, want %q", tc.reason, skips, tc.skips)
			}
			n.checkLeft(tc.reason, strings.Fields(tc.leave), nil)
			if strings.Contains(n.Get("calls"), "systemctl stop kubelet") {
				t.Errorf("%s: the kubelet was stopped", tc.reason)
			}
		})
	}
}

// A slow init is not repeated after the machine's timeout.
func TestNodeStopsInitializingInTime(t *testing.T) {
	n := newNode(t, initializes)
	n.Put("fail-join", "99")
	n.Put("leave", initialized)
	n.Command("kubeadm", `[ "$1" = token ] || sleep 1500`+"\n"+commands["kubeadm"])
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "kubeadm init did not succeed within 75 min, in 3 attempts") {
		t.Errorf("err = %v", err)
	}
}

func TestNodeGivesUp(t *testing.T) {
	n := newNode(t, nil)
	n.Put("fail-join", "99")
	n.Put("leave", "")
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "kubeadm join failed 10 times") {
		t.Errorf("err = %v", err)
	}
	if n.Get(sentinel) != "" {
		t.Error("claims success")
	}
}

func TestNodeStopsTryingInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*nodeconfig.Config)
		// timeout is how long the machine may wait for its cluster.
		timeout time.Duration
		// slow takes 25 minutes each time, and fails: the API server or a command.
		slow    string
		leave   string
		want    string
		waited  time.Duration
		stopped bool
	}{
		"NoCluster": {
			reason: "a control plane machine stops waiting after its timeout", change: joinsControlPlane, slow: "api",
			want:   "This machine could not join the cluster within 75 min: https://10.77.0.10:6443 does not respond, or rejects this machine",
			waited: time.Hour,
		},
		"PatientWorker": {
			reason: "a worker waits as long as its credential is good for", timeout: 2 * time.Hour, slow: "api",
			want: "could not join the cluster within 125 min", waited: 2 * time.Hour,
		},
		"Slow": {
			reason: "attempts that take long are not begun any more", change: joinsControlPlane, slow: "kubeadm",
			want: "kubeadm join did not succeed within 75 min, in 3 attempts", waited: time.Hour, stopped: true,
		},
		"SlowNode": {
			reason: "the kubelet of a machine that is a node keeps running", change: joinsControlPlane, slow: "kubeadm", leave: "kubelet.conf",
			want: "kubeadm join did not succeed within 75 min, in 3 attempts", waited: time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) {
				if tc.change != nil {
					tc.change(c)
				}
				if tc.timeout != 0 {
					c.Join.ClusterSeconds = int(tc.timeout.Seconds())
				}
			})
			n.Put("fail-join", "99")
			n.Put("leave", tc.leave)
			const slow = 1500
			if tc.slow == "api" {
				n.api.missing = []string{"*"}
				n.api.slow = func() { n.Put("proc/uptime", fmt.Sprintf("%.2f 1.00\n", n.Seconds()+slow)) }
			} else {
				n.Command(tc.slow, fmt.Sprintf("sleep %d\n%s\nexit 1", slow, commands[tc.slow]))
			}
			err := n.boot()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: err = %v", tc.reason, err)
			}
			if now := n.Seconds(); now < tc.waited.Seconds() {
				t.Errorf("%s: gave up at %v", tc.reason, now)
			}
			if stopped := strings.HasSuffix(n.Get("calls"), "systemctl stop kubelet\n"); stopped != tc.stopped {
				t.Errorf("%s: kubelet stopped in the end = %v", tc.reason, stopped)
			}
			if n.Get(sentinel) != "" {
				t.Error("claims success")
			}
		})
	}
}

// kubeadm is stopped at the deadline.
func TestNodeBoundsKubeadm(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) { c.Join.JoinSeconds = 1 })
	// exec: the signal must reach the process that waits.
	n.Command("kubeadm", `echo begun >>"$T/calls"; exec /bin/sleep 60`)
	begun := time.Now()
	err := n.boot()
	if err == nil || !strings.Contains(err.Error(), "kubeadm join did not succeed within 0 min, in 1 attempts") {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("kubeadm ran for %s", took)
	}
}

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
		"NotJoined":   {reason: "another boot may go on", change: func(n *node) { n.Put("fail-join", "99") }},
		"NoDirectory": {reason: "nothing is written by cloud-init then", change: func(n *node) { _ = os.RemoveAll(n.Dir("var/lib/cloud")) }, ends: true},
		"NotDisabled": {
			reason: "cloud-init would write them again, or take the machine for a new one", ends: true,
			change: func(n *node) { n.Put("etc/cloud", "in the way") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, func(c *nodeconfig.Config) {
				if tc.command != "" {
					c.Join.After = []string{tc.command}
				}
			})
			n.Put("leave", "")
			for _, path := range append(slices.Clone(copies), kept...) {
				n.Put(path, "key of the authority")
			}
			if tc.change != nil {
				tc.change(n)
			}
			if err := n.boot(); (err == nil) != tc.ends {
				t.Fatalf("boot ended with %v\n%s", err, n.log())
			}
			if got := n.There(disabled); got != tc.forgets {
				t.Errorf("%s: cloud-init is disabled: %t", tc.reason, got)
			}
			for _, path := range copies {
				if got := !n.There(path); got != tc.forgets && name != "NoDirectory" {
					t.Errorf("%s: %s is deleted: %t", tc.reason, path, got)
				}
			}
			for _, path := range kept {
				if !n.There(path) && name != "NoDirectory" {
					t.Errorf("%s is deleted", path)
				}
			}
		})
	}
}

// The proxy's file gets the node's own addresses, which it reaches directly.
func TestNodeReachesItselfDirectly(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) {
		c.Machine.Files = []nodeconfig.File{{Path: "/etc/nova/proxy.env", Mode: "0600", Text: "NO_PROXY='localhost,__NOVA_NODE_IP__'\n"}}
	})
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	if got := n.Get("etc/nova/proxy.env"); got != "NO_PROXY='localhost,10.77.0.105'\n" {
		t.Errorf("the proxy's file is %q", got)
	}
}

// The time that the download of the agent took counts, too.
func TestNodeCountsFromTheFirstCommand(t *testing.T) {
	n := newNode(t, nil)
	n.api.missing = []string{"*"}
	n.api.slow = func() { n.Put("proc/uptime", fmt.Sprintf("%.2f 1.00\n", n.Seconds()+600)) }
	n.Put("proc/uptime", "3000.50 1.00\n")
	err := boot.Run(t.Context(), n.With("NOVA_BOOT_STARTED=100.50"))
	if err == nil || !strings.Contains(err.Error(), "could not join the cluster within 68 min") {
		t.Errorf("err = %v", err)
	}
	if n.Seconds() > 3000+2*601 {
		t.Errorf("gave up at %v", n.Seconds())
	}
}

// A node that follows its desired settings starts from those of the first boot.
func TestNodeFollowsItsSettings(t *testing.T) {
	n := newNode(t, func(c *nodeconfig.Config) {
		c.Follow = true
		c.Machine.Files = []nodeconfig.File{{Path: nodeconfig.ProxyFile, Mode: "0600", Text: "NO_PROXY='__NOVA_NODE_IP__'\n"}}
		c.Kubelet.Args = []nodeconfig.Setting{{Name: "provider-id", Value: nodeconfig.ProviderID}}
	})
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if !strings.Contains(n.Get("calls"), "systemctl enable --now nova-host-agent.service\n") {
		t.Errorf("calls:\n%s", n.Get("calls"))
	}
	record := n.Get("var/lib/nova/settings.json")
	for _, want := range []string{`"name":"blue-abc12"`, `NO_PROXY='10.77.0.105'`, `"value":"vsphere://4237a1b2`, `"node":"blue-abc12"`} {
		if !strings.Contains(record, want) {
			t.Errorf("the record has no %s: %s", want, record)
		}
	}
	other := newNode(t, nil)
	if err := other.boot(); err != nil || other.There("var/lib/nova/settings.json") || strings.Contains(other.Get("calls"), "nova-host-agent") {
		t.Errorf("a node that does not follow: %v, %s", err, other.Get("calls"))
	}
}

// Puppet's agent starts last: kubeadm and the user's commands have changed the system
// by then.
func TestNodeStartsPuppet(t *testing.T) {
	puppet := func(c *nodeconfig.Config) {
		c.ConfigurationManager = &nodeconfig.ConfigurationManager{Server: "puppet.corp", CA: "CA", Environment: "production", IntervalSeconds: 60, Certname: "blue-abc12.uid", Token: "t0ken"}
		c.Join.After = []string{`echo post >>"$T/calls"`}
	}
	n := newNode(t, puppet)
	if err := n.boot(); err != nil {
		t.Fatalf("%v\n%s", err, n.log())
	}
	if calls := n.Get("calls"); !strings.HasSuffix(calls, "systemctl enable --now nova-puppet.service\n") || !strings.Contains(calls, "post\n") {
		t.Errorf("calls:\n%s", calls)
	}
	if record := n.Get("var/lib/nova/puppet.json"); !strings.Contains(record, `"node":"blue-abc12"`) || strings.Contains(n.log(), "t0ken") {
		t.Errorf("the record is %s, the log\n%s", record, n.log())
	}

	broken := newNode(t, puppet)
	broken.Put("etc/nova", "a file instead of a folder")
	if err := broken.boot(); err == nil || !strings.Contains(err.Error(), "starting Puppet's agent") {
		t.Errorf("got error %v", err)
	}
}

// A machine whose image has another version of Kubernetes gets the programs before it
// becomes a node.
func TestNodeInstallsItsVersion(t *testing.T) {
	const older, newer = "v1.36.3", "v1.37.0"
	program := func(name, version string) string {
		return "#!/bin/sh\ncase \"$1\" in *version) echo \"Kubernetes " + version + "\"; exit ;; esac\n" + commands[name] + "\n"
	}
	for name, tc := range map[string]struct {
		// image is the version of the image.
		image, hash string
		downloads   int
		want        string
	}{
		"Other":     {image: older, downloads: 3},
		"Same":      {image: newer},
		"WrongHash": {image: older, hash: strings.Repeat("0", 64), downloads: 2, want: "getting Kubernetes v1.37.0: kubelet v1.37.0 has another SHA-256 than 000"},
	} {
		t.Run(name, func(t *testing.T) {
			downloads := 0
			files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				downloads++
				_, _ = w.Write([]byte(program(strings.TrimPrefix(r.URL.Path, "/"), newer)))
			}))
			t.Cleanup(files.Close)
			n := newNode(t, func(c *nodeconfig.Config) {
				c.Follow, c.Kubernetes.Version = true, newer
				for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
					sum := sha256.Sum256([]byte(program(name, newer)))
					p := nodeconfig.Program{Name: name, URL: files.URL + "/" + name, SHA256: hex.EncodeToString(sum[:])}
					if name == "kubelet" && tc.hash != "" {
						p.SHA256 = tc.hash
					}
					c.Kubernetes.Programs = append(c.Kubernetes.Programs, p)
				}
			})
			for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
				n.Program("bin/"+name, program(name, tc.image))
			}
			err := n.boot()
			if downloads != tc.downloads {
				t.Errorf("%d downloads", downloads)
			}
			if tc.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(n.Get("calls"), "kubeadm join") || n.Get("bin/kubelet") != program("kubelet", tc.image) {
					t.Errorf("%v\n%s", err, n.Get("calls"))
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, n.log())
			}
			for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
				if n.Get("bin/"+name) != program(name, newer) {
					t.Errorf("%s is another one", name)
				}
			}
			if !strings.Contains(n.Get("var/lib/nova/settings.json"), `"kubernetes":{"version":"v1.37.0"`) {
				t.Error("the record does not have the version")
			}
		})
	}
}
