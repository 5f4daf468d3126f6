// Package scopetest has observed states of control planes for the unit tests of
// controllers/controlplane and its packages.
package scopetest

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// AllRun are the components of a healthy node.
var AllRun = facts.Components{
	APIServer: facts.Component{State: facts.Running}, ControllerManager: facts.Component{State: facts.Running},
	Scheduler: facts.Component{State: facts.Running}, Etcd: facts.Component{State: facts.Running}, KubeVIP: facts.Component{State: facts.Running},
}

// Running is a healthy control plane of one machine.
func Running() *scope.Scope {
	return &scope.Scope{
		ControlPlane: &controlplanev1.NovaControlPlane{Status: controlplanev1.NovaControlPlaneStatus{
			Initialization: controlplanev1.NovaControlPlaneInitializationStatus{ControlPlaneInitialized: ptr.To(true)},
		}},
		ClusterName:  "c",
		Initialized:  true,
		Certificates: scope.CertificatesState{Known: true},
		Machines:     Machines(""),
		Workload: facts.Cluster{
			Answers: true, KubeadmConfig: true,
			Nodes:    []facts.Node{{Name: "m0", ControlPlane: true, Ready: true, Components: AllRun}},
			Endpoint: facts.Endpoint{Probed: true, Answers: true, Holder: "m0", Confirmed: true},
			Etcd:     &etcd.Health{Members: []etcd.Member{{Name: "m0", Answers: true}}},
		},
	}
}

// SetExternalEtcd changes a control plane to external etcd.
func SetExternalEtcd(s *scope.Scope) {
	s.ControlPlane.Spec.Etcd.External.Endpoints = []string{"https://etcd.example.org:2379"}
}

// Machines returns a machine in each failure domain.
func Machines(domains ...string) collections.Machines {
	machines := collections.New()
	for i, domain := range domains {
		machines.Insert(&clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)},
			Spec:       clusterv1.MachineSpec{FailureDomain: domain},
		})
	}
	return machines
}

// Condition returns a condition without a message.
func Condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason}
}

// MachineWith returns a machine with conditions.
func MachineWith(of ...metav1.Condition) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m0"}}
	for _, c := range of {
		conditions.Set(m, c)
	}
	return m
}
