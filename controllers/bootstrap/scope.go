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
)

// scope holds the facts of one reconcile, in the order they are learnt.
type scope struct {
	config  *bootstrapv1.NovaConfig
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster

	// secret is the bootstrap data as it is, nil if there is none.
	secret *corev1.Secret
	due    due

	// controlPlane is nil under another control plane provider.
	controlPlane *controlplanev1.NovaControlPlane
	mode         bootstrap.Mode
	spec         bootstrapv1.NodeConfigSpec
	surroundings bootstrap.PlatformData
	// passwordHashes are those of the spec's users, by name.
	passwordHashes map[string]string
	pki            []bootstrap.File
	join           *bootstrap.JoinCredentials
	// lifetime is how long join is good for, and token its ID if it is a
	// bootstrap token.
	lifetime time.Duration
	token    string
	// joinBy is when the credential of a machine ends that is to be a member of
	// etcd; zero for all others.
	joinBy time.Time
	// restore is what etcd starts with, if not empty, and restoreExpires until
	// when it can be had.
	restore        *bootstrap.Restore
	restoreExpires time.Time
	data           []byte

	// obstacle is what someone has to take away first.
	obstacle *obstacle
	// refreshed says that data was replaced by data with a newer certificate.
	refreshed bool
}

// obstacle ends a reconcile until someone outside acts.
type obstacle struct {
	reason, message string
	// waiting says that it is part of a cluster's normal life.
	waiting bool
	// again is when to look again; 0 means when a watch tells.
	again time.Duration
}

// Error implements error.
func (o *obstacle) Error() string { return o.message }

func (s *scope) clusterKey() client.ObjectKey { return client.ObjectKeyFromObject(s.cluster) }

func (s *scope) isControlPlane() bool { return util.IsControlPlaneMachine(s.machine) }

// settled reports whether the machine has joined. Its data is not used any
// more.
func (s *scope) settled() bool { return s.machine.Status.NodeRef.IsDefined() }

// joiner is whom the machine's credential is for. It stays when the Machine's UID
// changes in a move.
func (s *scope) joiner() types.UID {
	if s.secret != nil && s.secret.Annotations[joinerAnnotation] != "" {
		return types.UID(s.secret.Annotations[joinerAnnotation])
	}
	return s.machine.UID
}

// observed are the facts of the decision.
func (s *scope) observed(now time.Time) observed {
	o := observed{
		stored:         s.secret != nil,
		settled:        s.settled(),
		infrastructure: ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false),
		endpoint:       s.cluster.Spec.ControlPlaneEndpoint.IsValid(),
	}
	if at, expires := s.refreshTime(); expires {
		o.stale = !now.Before(at)
	}
	return o
}

// refreshTime returns the time at which the data is rendered again. Data without
// credentials stays, and so does the data of a machine that is to be a member of
// etcd and has started: its control plane counts on it until the credential ends.
func (s *scope) refreshTime() (at time.Time, expires bool) {
	if s.config != nil && s.config.Annotations[bootstrapv1.JoinByAnnotation] != "" && s.machine.Spec.ProviderID != "" {
		return time.Time{}, false
	}
	return refreshTime(s.secret)
}

// untilRefresh is how long the data stays as it is, 0 for ever.
func (s *scope) untilRefresh(now time.Time) time.Duration {
	at, expires := s.refreshTime()
	if !expires || s.settled() {
		return 0
	}
	return max(at.Sub(now), time.Second)
}
