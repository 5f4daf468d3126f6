package controlplane

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestPickDomain(t *testing.T) {
	domain := func(name string, controlPlane *bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: controlPlane}
	}
	abc := []clusterv1.FailureDomain{domain("a", ptr.To(true)), domain("b", ptr.To(true)), domain("c", ptr.To(true))}
	for name, tc := range map[string]struct {
		reason   string
		domains  []clusterv1.FailureDomain
		machines collections.Machines
		differs  map[string][]string
		want     string
	}{
		"None":        {reason: "nothing to choose from", machines: scopetest.Machines("")},
		"FewestFirst": {reason: "the emptiest is filled first", domains: abc, machines: scopetest.Machines("a", "a", "b"), want: "c"},
		"OutdatedDoNotCount": {
			reason:  "machines to be replaced do not keep a failure domain from new ones",
			domains: abc, machines: scopetest.Machines("a", "b", "c"), differs: map[string][]string{"m1": {"version"}}, want: "b",
		},
		"ForControlPlanesOnly": {
			reason:   "failure domains that are not for control planes stay empty",
			domains:  []clusterv1.FailureDomain{domain("a", nil), domain("b", ptr.To(false)), domain("c", ptr.To(true))},
			machines: scopetest.Machines("c"), want: "c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope.Scope{
				Cluster:      &clusterv1.Cluster{Status: clusterv1.ClusterStatus{FailureDomains: tc.domains}},
				ControlPlane: &controlplanev1.NovaControlPlane{},
				Machines:     tc.machines, Differs: tc.differs,
			}
			if got := pickDomain(t.Context(), s); got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestMachineName(t *testing.T) {
	long := strings.Repeat("x", 70)
	for name, tc := range map[string]struct{ reason, template, controlPlane, want string }{
		"Default": {reason: "as Kubernetes generates names", template: controlplanev1.DefaultMachineNaming, controlPlane: "blue-cp", want: "^blue-cp-[a-z0-9]{5}$"},
		"Site":    {reason: "a convention of the site", template: "srv-{{.cluster.name}}-{{  .random  }}-cp", controlPlane: "blue-cp", want: "^srv-blue-[a-z0-9]{5}-cp$"},
		"Long":    {reason: "a label holds it", template: controlplanev1.DefaultMachineNaming, controlPlane: long, want: "^x{58}[a-z0-9]{5}$"},
	} {
		t.Run(name, func(t *testing.T) {
			got := machineName(tc.template, "blue", tc.controlPlane)
			if !regexp.MustCompile(tc.want).MatchString(got) {
				t.Errorf("%s: got %q", tc.reason, got)
			}
			if again := machineName(tc.template, "blue", tc.controlPlane); again == got {
				t.Errorf("two machines are named %s", got)
			}
		})
	}
}
