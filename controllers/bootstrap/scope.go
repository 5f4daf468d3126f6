package bootstrap

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// scope holds the facts of one reconcile, in the order in which they are read.
type scope struct {
	config  *bootstrapv1.NovaConfig
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster

	// secret is the current bootstrap data. It is nil if there is none.
	secret *corev1.Secret
	action dataAction

	// controlPlane is nil with another control plane provider.
	controlPlane *controlplanev1.NovaControlPlane
	mode         bootstrap.Mode
	spec         bootstrapv1.NodeConfigSpec
	platformData bootstrap.PlatformData
	// passwordHashes are the hashes of the spec's users, by user name.
	passwordHashes map[string]string
	pki            []bootstrap.File
	// keyless is true if pki has no keys of CAs, and vault signs for the machine that initializes the
	// cluster.
	keyless bool
	vault   *nodeconfig.Vault
	// authorities are the CAs of a cluster whose CAs were rotated.
	authorities *nodeconfig.Authorities
	join        *bootstrap.JoinCredentials
	// enrollment lets the node get a certificate of the Puppet server's CA, if there is one.
	enrollment *bootstrap.Enrollment
	// lifetime is the validity of join. token is its ID if join is a bootstrap token.
	lifetime time.Duration
	token    string
	// joinBy is the expiry of the credential of a machine that will be an etcd member. It is zero for
	// all other machines.
	joinBy time.Time
	// restore is the snapshot with which etcd starts, if it does not start empty. restoreExpires is
	// the time until which it can be downloaded.
	restore        *bootstrap.Restore
	restoreExpires time.Time
	data           []byte

	// blocked is the known cause for which the reconcile ended early.
	blocked *reconcile.Outcome
	// refreshed means that the data was replaced by data with a newer certificate.
	refreshed bool
}

func (s *scope) clusterKey() client.ObjectKey { return client.ObjectKeyFromObject(s.cluster) }

func (s *scope) isControlPlane() bool { return util.IsControlPlaneMachine(s.machine) }

// hasJoined reports whether the machine has joined. Its data is not used any more.
func (s *scope) hasJoined() bool { return s.machine.Status.NodeRef.IsDefined() }

// joiner returns the UID for which the machine's credential was issued. It stays the same when a move
// changes the Machine's UID.
func (s *scope) joiner() types.UID {
	if s.secret != nil && s.secret.Annotations[joining.JoinerAnnotation] != "" {
		return types.UID(s.secret.Annotations[joining.JoinerAnnotation])
	}
	return s.machine.UID
}

// observed returns the input of the decision.
func (s *scope) observed(now time.Time) observed {
	o := observed{
		stored:         s.secret != nil,
		joined:         s.hasJoined(),
		infrastructure: ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false),
		endpoint:       s.cluster.Spec.ControlPlaneEndpoint.IsValid(),
	}
	if at, expires := s.refreshTime(); expires {
		o.stale = !now.Before(at)
	}
	return o
}

// refreshTime returns the time at which the data is rendered again. Data without credentials stays,
// and so does the data of a started machine that will be an etcd member: its control plane expects it
// to join until the credential ends.
func (s *scope) refreshTime() (at time.Time, expires bool) {
	if s.config != nil && s.config.Annotations[bootstrapv1.JoinByAnnotation] != "" && s.machine.Spec.ProviderID != "" {
		return time.Time{}, false
	}
	return refreshTime(s.secret)
}

// untilRefresh returns the time until the data is rendered again, or 0 if it never is.
func (s *scope) untilRefresh(now time.Time) time.Duration {
	at, expires := s.refreshTime()
	if !expires || s.hasJoined() {
		return 0
	}
	return max(at.Sub(now), time.Second)
}

// refreshTime returns the time at which the data is renewed. Data without credentials stays.
func refreshTime(secret *corev1.Secret) (at time.Time, expires bool) {
	if secret == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, secret.Annotations[refreshAnnotation])
	return at, err == nil
}

// storedMode returns the mode of the data, or an empty string if there is none.
func storedMode(secret *corev1.Secret) bootstrap.Mode {
	if secret == nil {
		return ""
	}
	return bootstrap.Mode(secret.Annotations[bootstrapv1.ModeAnnotation])
}
