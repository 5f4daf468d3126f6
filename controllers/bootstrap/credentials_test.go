package bootstrap

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// The control plane of a machine that will be an etcd member expects it to join for as long as its
// credential is valid.
func TestBoundJoin(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	stacked, external, slow := &controlplanev1.NovaControlPlane{}, &controlplanev1.NovaControlPlane{}, &controlplanev1.NovaControlPlane{}
	external.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
	slow.Spec.Platform.JoinTimeoutSeconds = 7200
	for name, tc := range map[string]struct {
		mode         bootstrap.Mode
		controlPlane *controlplanev1.NovaControlPlane
		ttl          time.Duration
		lifetime     time.Duration
		bounded      bool
	}{
		"Worker":            {mode: bootstrap.JoinWorker, controlPlane: stacked, lifetime: DefaultCredentialTTL},
		"ControlPlane":      {mode: bootstrap.JoinControlPlane, controlPlane: stacked, lifetime: 2 * time.Hour, bounded: true},
		"ControlPlaneSlow":  {mode: bootstrap.JoinControlPlane, controlPlane: slow, lifetime: 4 * time.Hour, bounded: true},
		"ControlPlaneShort": {mode: bootstrap.JoinControlPlane, controlPlane: stacked, ttl: 20 * time.Minute, lifetime: 20 * time.Minute, bounded: true},
		"ExternalEtcd":      {mode: bootstrap.JoinControlPlane, controlPlane: external, lifetime: DefaultCredentialTTL},
		"OfAnotherProvider": {mode: bootstrap.JoinControlPlane, lifetime: DefaultCredentialTTL},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ttl := tc.ttl
			if ttl == 0 {
				ttl = DefaultCredentialTTL
			}
			s := &scope{mode: tc.mode, controlPlane: tc.controlPlane, machine: &clusterv1.Machine{}}
			(&issuer{ttl: tc.ttl}).boundJoin(s, now)
			g.Expect(s.lifetime).To(Equal(min(tc.lifetime, ttl)))
			g.Expect(s.joinBy.Equal(now.Add(s.lifetime))).To(Equal(tc.bounded))
		})
	}
}

// signer is a signer of all clusters.
type signer struct {
	pki.Signer
	signs  bool
	err    error
	logins []time.Duration
}

func (s *signer) Signs(context.Context, client.ObjectKey) (bool, error) { return s.signs, s.err }

func (s *signer) NodeLogin(_ context.Context, cluster client.ObjectKey, ttl time.Duration) (*pki.NodeLogin, error) {
	s.logins = append(s.logins, ttl)
	return &pki.NodeLogin{Server: "https://vault", CABundle: []byte("ca"), WrappedSecretID: "wrapped", MountPath: "nova/" + cluster.String()}, nil
}

// files is an authority that has files for control plane machines.
type files struct{ pki.Authority }

func (files) ControlPlaneFiles(context.Context, client.ObjectKey) ([]pki.File, error) {
	return []pki.File{{Path: "/etc/kubernetes/pki/ca.crt"}}, nil
}

func TestLoginOfTheFirstMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		signer  *signer
		ttl     time.Duration
		keyless bool
		want    time.Duration
	}{
		"None":    {reason: "kubeadm signs", signer: &signer{}},
		"Default": {reason: "the vault signs", signer: &signer{signs: true}, keyless: true, want: 24 * time.Hour},
		"Short":   {reason: "as other credentials", signer: &signer{signs: true}, ttl: time.Hour, keyless: true, want: time.Hour},
		"Long":    {reason: "the vault's policy allows a day", signer: &signer{signs: true}, ttl: 100 * time.Hour, keyless: true, want: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{mode: bootstrap.Init, config: &bootstrapv1.NovaConfig{}, cluster: &clusterv1.Cluster{}}
			s.cluster.Namespace, s.cluster.Name = "default", "blue"
			r := &issuer{authority: files{}, signer: tc.signer, ttl: tc.ttl}
			g.Expect(r.issueCredentials(t.Context(), s)).To(Succeed())
			g.Expect(s.keyless).To(Equal(tc.keyless), tc.reason)
			now := time.Now().Truncate(time.Second)
			at, expires := refreshTime(newSecret(s, now))
			if !tc.keyless {
				g.Expect(s.vault).To(BeNil())
				g.Expect(expires).To(BeFalse())
				return
			}
			g.Expect(tc.signer.logins).To(Equal([]time.Duration{tc.want}))
			g.Expect(s.vault).To(HaveField("MountPath", "nova/default/blue"))
			g.Expect(at).To(BeTemporally("==", now.Add(tc.want/2)), "renewed at half of its life")
		})
	}
}

func TestNoBootstrapDataWhileTheSignerIsUnknown(t *testing.T) {
	g := NewWithT(t)
	r := &issuer{authority: files{}, signer: &signer{err: errors.New("the server does not respond")}}
	s := &scope{mode: bootstrap.Init, config: &bootstrapv1.NovaConfig{}, cluster: &clusterv1.Cluster{}}
	g.Expect(r.issueCredentials(t.Context(), s)).To(MatchError(ContainSubstring("the server does not respond")))
	g.Expect(s.pki).To(BeEmpty())
}

// An administrator of the StarVault has to act, so a NovaConfig that waits has an event with the cause.
func TestEveryProblemOfAStarVaultHasAnEvent(t *testing.T) {
	for _, problem := range []vault.Problem{
		vault.Unreachable, vault.Sealed, vault.CredentialsRejected, vault.Forbidden, vault.NotFound, vault.Refused, vault.Unsuitable,
	} {
		t.Run(string(problem), func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(1)
			r, s := &Reconciler{Recorder: recorder}, &scope{config: &bootstrapv1.NovaConfig{}}
			g.Expect(errors.As(withoutCertificates(&vault.Error{Problem: problem, Path: "nova/x", Detail: "it failed"}), &s.blocked)).To(BeTrue())
			conditions.Set(s.config, s.condition(nil))
			r.announce(s, metav1.Condition{})
			g.Expect(recorder.Events).To(Receive(ContainSubstring("Warning " + string(problem))))
		})
	}
}

// Waiting in a queue of the hypervisor does not reduce a machine's time to join.
func TestCredentialIsRenewedUntilTheMachineStarts(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason     string
		providerID string
		joinBy     string
		want       dataAction
	}{
		"Queued":  {reason: "it has not started", joinBy: now.Format(time.RFC3339), want: write},
		"Started": {reason: "it runs with its existing data", joinBy: now.Format(time.RFC3339), providerID: "vsphere://x", want: publish},
		"Worker":  {reason: "no control plane uses it", providerID: "vsphere://x", want: write},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{
				machine: &clusterv1.Machine{Spec: clusterv1.MachineSpec{ProviderID: tc.providerID}}, config: &bootstrapv1.NovaConfig{},
				cluster: &clusterv1.Cluster{}, secret: &corev1.Secret{},
			}
			s.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
			s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "a", Port: 1}
			s.secret.Annotations = map[string]string{refreshAnnotation: now.Add(-time.Minute).Format(time.RFC3339)}
			if tc.joinBy != "" {
				s.config.Annotations = map[string]string{bootstrapv1.JoinByAnnotation: tc.joinBy}
			}
			g.Expect(next(s.observed(now))).To(Equal(tc.want), tc.reason)
		})
	}
}
