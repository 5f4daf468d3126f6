package fleet

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

func TestSentence(t *testing.T) {
	for message, want := range map[string]string{
		"":                  "",
		"The VM is missing": "The VM is missing",
		"* WorkersAvailable: 1 of 3 available\n* RemoteConnectionProbe: no response":                                 "WorkersAvailable: 1 of 3 available",
		"* ControlPlaneAvailable:\n  * Machine a:\n    * EtcdMemberHealthy: no leader\n  * Machine b: x\n* Other: y": "ControlPlaneAvailable: Machine a: EtcdMemberHealthy: no leader",
		"\n* A: b":               "A: b",
		"* A: b\r\revent: x\x1b": "A: b  event: x ",
	} {
		NewWithT(t).Expect(sentence(message)).To(Equal(want), message)
	}
}

func TestHealth(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Test", Message: message}
	}
	for name, tc := range map[string]struct {
		deleting, initialized bool
		conditions            []metav1.Condition
		state, why            string
	}{
		"NotReported": {false, false, nil, progressing, "Cluster API has not reported the cluster yet"},
		"Ready":       {false, true, []metav1.Condition{condition("Available", metav1.ConditionTrue, "")}, ready, ""},
		"ComesUp":     {false, false, []metav1.Condition{condition("Available", metav1.ConditionFalse, "* A: waiting")}, progressing, "A: waiting"},
		"Failed":      {false, true, []metav1.Condition{condition("Available", metav1.ConditionFalse, "* A: broken")}, failed, "A: broken"},
		"Unknown":     {false, true, []metav1.Condition{condition("Available", metav1.ConditionUnknown, "")}, failed, "Test"},
		"Deleting":    {true, true, []metav1.Condition{condition("Available", metav1.ConditionTrue, ""), condition("Deleting", metav1.ConditionTrue, "* Machine a is drained")}, progressing, "Machine a is drained"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv1.Cluster{Status: clusterv1.ClusterStatus{Conditions: tc.conditions}}
			c.Status.Initialization.ControlPlaneInitialized = &tc.initialized
			if tc.deleting {
				c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			state, why := health(c)
			NewWithT(t).Expect([]string{state, why}).To(Equal([]string{tc.state, tc.why}))
		})
	}
}

func TestRow(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	count := func(n int32) *int32 { return &n }
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}}
	cluster.Spec.InfrastructureRef.Kind = "NovaVSphereCluster"
	cluster.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{DesiredReplicas: count(3), Versions: []clusterv1.StatusVersion{{Version: "v1.36.3"}, {Version: "v1.37.0"}}}
	plane := &controlplanev1.NovaControlPlane{}
	r := rowOf(cluster, plane, now.Add(certificateWarning+time.Hour), now)
	g.Expect(r.Version).To(Equal("v1.36.3, v1.37.0"))
	g.Expect(r.Hypervisor).To(Equal("VSphere"))
	g.Expect(r.ControlPlane).To(Equal("0/3"))
	g.Expect(r.Workers).To(BeEmpty())
	g.Expect(r.ExpiresSoon || r.SnapshotLate).To(BeFalse())
	plane.Status.Etcd.NextSnapshotTime = &metav1.Time{Time: now.Add(-snapshotGrace - time.Minute)}
	r = rowOf(cluster, plane, now.Add(time.Hour), now)
	g.Expect(r.ExpiresSoon && r.SnapshotLate).To(BeTrue())
	g.Expect(rowOf(cluster, nil, time.Time{}, now).ExpiresSoon).To(BeFalse(), "another control plane provider")

	machine := func(name string, controlPlane bool, expires time.Time) clusterv1.Machine {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: clusterv1.MachineSpec{ClusterName: "blue"}}
		m.Status.CertificatesExpiryDate = metav1.NewTime(expires)
		if controlPlane {
			m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		}
		return m
	}
	first := firstExpiries([]clusterv1.Machine{machine("a", true, now.Add(2*time.Hour)), machine("b", true, now.Add(time.Hour)), machine("c", false, now), machine("d", true, time.Time{})})
	g.Expect(first).To(HaveLen(1))
	for _, expires := range first {
		g.Expect(expires).To(BeTemporally("==", now.Add(time.Hour)))
	}
}
