package bootstrap

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// A machine that is to be a member of etcd cannot join when its control plane
// does not count on it any more, and is given nothing newer.
func TestBoundJoin(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	stacked, external := &controlplanev1.NovaControlPlane{}, &controlplanev1.NovaControlPlane{}
	external.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
	for name, tc := range map[string]struct {
		mode         bootstrap.Mode
		age          time.Duration
		controlPlane *controlplanev1.NovaControlPlane
		ttl          time.Duration
		lifetime     time.Duration
		final        bool
		late         bool
	}{
		"Worker":              {mode: bootstrap.JoinWorker, age: 5 * time.Hour, controlPlane: stacked, lifetime: DefaultCredentialTTL},
		"ControlPlane":        {mode: bootstrap.JoinControlPlane, age: 10 * time.Minute, controlPlane: stacked, lifetime: 50 * time.Minute, final: true},
		"ControlPlaneShort":   {mode: bootstrap.JoinControlPlane, age: 10 * time.Minute, controlPlane: stacked, ttl: 20 * time.Minute, lifetime: 20 * time.Minute},
		"ControlPlaneTooLate": {mode: bootstrap.JoinControlPlane, age: time.Hour, controlPlane: stacked, late: true},
		"ExternalEtcd":        {mode: bootstrap.JoinControlPlane, age: 5 * time.Hour, controlPlane: external, lifetime: DefaultCredentialTTL},
		"OfAnotherProvider":   {mode: bootstrap.JoinControlPlane, age: 5 * time.Hour, lifetime: DefaultCredentialTTL},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{mode: tc.mode, controlPlane: tc.controlPlane, machine: &clusterv1.Machine{}}
			s.machine.CreationTimestamp = metav1.NewTime(now.Add(-tc.age))
			err := (&Reconciler{CredentialTTL: tc.ttl}).boundJoin(s, now)
			if tc.late {
				stop, stopped := errors.AsType[*obstacle](err)
				g.Expect(stopped).To(BeTrue())
				g.Expect(stop.reason).To(Equal(bootstrapv1.TooLateToJoinReason))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.lifetime).To(Equal(tc.lifetime))
			g.Expect(s.final).To(Equal(tc.final))
		})
	}
}
