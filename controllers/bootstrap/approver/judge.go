package approver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// Purposes of requests.
const (
	joinKind         = "join"
	servingKind      = "serving"
	renewalKind      = "renewal"
	controlPlaneKind = "control-plane"
)

// kindOf returns the purpose of a request.
func kindOf(csr *certificatesv1.CertificateSigningRequest) string {
	switch {
	case certificates.AuthorityOf(csr.Spec.SignerName) != "":
		return controlPlaneKind
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName:
		return servingKind
	case strings.HasPrefix(csr.Spec.Username, nodeUserPrefix):
		return renewalKind
	}
	return joinKind
}

// decide decides one request, and returns the machine that it concerns.
func (r *Reconciler) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, f *clusterFacts) (csrDecision, *clusterv1.Machine, error) {
	parsed := read(csr)
	node := strings.TrimPrefix(parsed.username, nodeUserPrefix)
	if a := certificates.AuthorityOf(csr.Spec.SignerName); a != "" {
		return r.decideForAuthority(ctx, parsed, a, f)
	}
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		m := machineOfNode(node, f.ours)
		if !servesNode(parsed, m) {
			return csrDecision{action: ignore}, m, nil
		}
		net, err := r.network(ctx, f)
		return decideServing(parsed, m, net, f.machines), m, err
	}
	if node != parsed.username {
		m := machineOfNode(node, f.machines)
		return decideRenewal(parsed, m, f.renewable), m, nil
	}
	uid, ours, err := joinerOf(ctx, f.workload, parsed)
	if err != nil || !ours {
		return csrDecision{action: ignore}, nil, err
	}
	machine, err := r.machineOfJoiner(ctx, uid, f.ours)
	if err != nil {
		return csrDecision{}, nil, err
	}
	if machine == nil {
		return decideJoin(parsed, joiner{}), nil, nil
	}
	decision, err := r.decideJoiner(ctx, parsed, f.workload, machine)
	return decision, machine, err
}

// decideForAuthority decides a request for a certificate of a control plane machine, which only a
// cluster without keys of CAs has.
func (r *Reconciler) decideForAuthority(ctx context.Context, parsed request, a certificates.Authority, f *clusterFacts) (csrDecision, *clusterv1.Machine, error) {
	var from joiner
	if node, is := strings.CutPrefix(parsed.username, nodeUserPrefix); is {
		if m := machineOfNode(node, f.ours); servesNode(parsed, m) {
			from.machine = m
		}
	} else if uid, ours, err := joinerOf(ctx, f.workload, parsed); err != nil {
		return csrDecision{}, nil, err
	} else if ours {
		if from.machine, err = r.machineOfJoiner(ctx, uid, f.ours); err != nil {
			return csrDecision{}, nil, err
		}
		if from.machine != nil {
			if from.node, err = hasNode(ctx, f.workload, from.machine.Name); err != nil {
				return csrDecision{}, nil, err
			}
		}
	}
	net, err := r.network(ctx, f)
	if err != nil {
		return csrDecision{}, nil, err
	}
	return decideControlPlane(parsed, a, from, f.controlPlane, net, f.machines), from.machine, nil
}

// hasNode reports whether a workload cluster has a node.
func hasNode(ctx context.Context, workloadClient client.Client, name string) (bool, error) {
	err := workloadClient.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading node: %w", err)
	}
	return err == nil, nil
}

// joinerOf returns the UID of the machine whose credential was used for a request. ours is false if
// the request was made with other credentials.
func joinerOf(ctx context.Context, live client.Client, parsed request) (uid types.UID, ours bool, err error) {
	if uid, found := strings.CutPrefix(parsed.username, joining.UserPrefix); found {
		return types.UID(uid), true, nil
	}
	id, found := strings.CutPrefix(parsed.username, joining.TokenUserPrefix)
	if !found || !slices.Contains(parsed.groups, joining.Group) {
		return "", false, nil
	}
	token := &corev1.Secret{}
	err = live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: joining.TokenNamePrefix + id}, token)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return "", false, fmt.Errorf("reading bootstrap token: %w", err)
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		// The token was deleted a moment ago, or belongs to another issuer: this manager issues tokens
		// only where it has the kubeconfig's permissions.
		return "", true, nil
	}
	return types.UID(token.Annotations[joining.TokenMachineAnnotation]), true, nil
}

// machineOfJoiner returns the machine that a credential belongs to. If the machine was moved after it
// got the credential, its bootstrap data identifies it.
func (r *Reconciler) machineOfJoiner(ctx context.Context, uid types.UID, machines []*clusterv1.Machine) (*clusterv1.Machine, error) {
	for _, m := range machines {
		if m.UID == uid {
			return m, nil
		}
	}
	for _, m := range machines {
		if m.Status.NodeRef.IsDefined() || uid == "" {
			continue // the credential of this machine is not valid any more
		}
		data := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}, data)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading bootstrap data: %w", err)
		}
		if data.Annotations[joining.JoinerAnnotation] == string(uid) && data.Labels[clusterv1.ClusterNameLabel] == m.Spec.ClusterName {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // nil means that the credential belongs to no machine
}

// decideJoiner decides a request that was made with a machine's credential. The key is recorded before
// it is approved: no other key is approved later, whatever happens in between and however old the
// cache is.
func (r *Reconciler) decideJoiner(ctx context.Context, parsed request, workloadClient client.Client, machine *clusterv1.Machine) (csrDecision, error) {
	node, err := hasNode(ctx, workloadClient, machine.Name)
	if err != nil {
		return csrDecision{}, err
	}
	from := joiner{machine: machine, node: node}
	config := &bootstrapv1.NovaConfig{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, config); err != nil {
		if apierrors.IsNotFound(err) {
			return pending("The NovaConfig of Machine %s does not exist", machine.Name), nil
		}
		return csrDecision{}, fmt.Errorf("reading NovaConfig: %w", err)
	}
	from.certified = config.Annotations[bootstrapv1.CertifiedKeyAnnotation]
	decision := decideJoin(parsed, from)
	if decision.action != approve || from.certified != "" {
		return decision, nil
	}
	updated := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, bootstrapv1.CertifiedKeyAnnotation, parsed.keyHash())
	if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})); err != nil {
		return csrDecision{}, fmt.Errorf("recording key: %w", err)
	}
	return decision, nil
}

// writeDecision writes a decision to the request and records an event.
func (r *Reconciler) writeDecision(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, workloadClient client.Client,
	j csrDecision, machine *clusterv1.Machine,
) error {
	if j.action == ignore {
		return nil
	}
	if j.action != hold {
		condition := certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "NovaMachine", Message: j.reason,
			LastUpdateTime: metav1.Now(),
		}
		if j.action == deny {
			condition.Type = certificatesv1.CertificateDenied
		}
		decided := csr.DeepCopy()
		decided.Status.Conditions = append(decided.Status.Conditions, condition)
		// It uses a patch, because the cache does not keep the whole object.
		err := workloadClient.SubResource("approval").Patch(ctx, decided, client.MergeFromWithOptions(csr, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // another approver was faster, and the watch reports it
		}
		if err != nil {
			return err
		}
	}
	r.announce(ctx, csr, j, machine)
	return nil
}

// announce records an event for a decision. A pending request gets one event per reason.
func (r *Reconciler) announce(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, j csrDecision, machine *clusterv1.Machine) {
	kind := kindOf(csr)
	if why, ok := r.reported.Get(csr.UID); ok && j.action == hold && why == j.reason {
		return
	}
	if j.action == hold {
		r.reported.Set(csr.UID, j.reason)
	} else {
		r.reported.Forget(csr.UID)
	}
	decisions.WithLabelValues(kind, strings.ToLower(string(j.action))).Inc()
	ctrl.LoggerFrom(ctx).Info("Decided certificate request", "request", csr.Name, "user", csr.Spec.Username, "decision", j.action, "reason", j.reason)
	if machine == nil {
		return
	}
	switch j.action {
	case deny:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, bootstrapv1.CertificateDeniedEventReason, string(deny), "Denied the certificate request %s: %s", csr.Name, j.reason)
	case hold:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, bootstrapv1.CertificatePendingEventReason, string(hold), "Left the certificate request %s pending: %s", csr.Name, j.reason)
	case sign:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, "CertificateSigned", string(sign), "Signed the %s certificate: %s", kind, j.reason)
	default:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, "CertificateApproved", string(approve), "Approved the %s certificate: %s", kind, j.reason)
	}
}
