package bootstrap

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// The settings of a running node are those that a new machine has.
func TestSettingsEqualThoseOfAFreshMachine(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) {
		everything(in)
		in.Platform.NTP.Servers = []string{"10.0.0.1"}
		in.Platform.APIServerLoadBalancer = &bootstrapv1.APIServerLoadBalancerSpec{}
		in.Follow = true
	})
	config, err := nodeConfig(&in)
	if err != nil {
		t.Fatal(err)
	}
	in.Join = nil // a node that has joined has no credentials to join with
	packed, revision, err := Settings(in)
	if err != nil {
		t.Fatal(err)
	}
	settings, read, err := nodeconfig.Unpack(packed)
	if err != nil || read != revision {
		t.Fatalf("revision %s, want %s: %v", read, revision, err)
	}
	want := &nodeconfig.Settings{Version: nodeconfig.Version, Node: in.Machine, Machine: config.Machine, Kubelet: config.Kubelet}
	if diff := cmp.Diff(want, settings); diff != "" || !config.Follow {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	args := []nodeconfig.Setting{
		{Name: "node-ip", Value: nodeconfig.NodeIP}, {Name: "node-labels", Value: "topology.kubernetes.io/zone=rack-1,disk=fast,rack=r1,row=2"},
		{Name: "max-pods", Value: "250"}, {Name: "provider-id", Value: "own://1"},
	}
	if diff := cmp.Diff(args, settings.Kubelet.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if again, _, err := Settings(in); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("the same input has other settings: %v", err)
	}
}

func TestSettingsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   Mode
		change func(*Input)
		want   string
	}{
		"ControlPlane": {JoinControlPlane, nil, "is no worker"},
		"Role":         {JoinWorker, func(in *Input) { in.Spec.Roles = []bootstrapv1.NodeRole{"control-plane"} }, "spec.roles"},
		"Size": {JoinWorker, func(in *Input) {
			in.Spec.Kernel.Sysctls = []bootstrapv1.Sysctl{{Name: "x", Value: strings.Repeat("0", nodeconfig.MaxSize)}}
		}, "spec.files: the node's settings are larger than 16 MiB"},
		"File": {JoinWorker, func(in *Input) { in.Spec.Files = []bootstrapv1.File{{Path: "/x", Content: "?", Encoding: "Base64"}} }, "spec.files[/x]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Settings(facts(tc.mode, tc.change)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want %q", err, tc.want)
			}
		})
	}
}
