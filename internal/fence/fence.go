package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

const (
	// RecordAnnotation holds the UID of the management cluster that an object
	// belongs to.
	RecordAnnotation = "nova-platform.io/management-cluster"

	// TakeOverAnnotation is set on a Cluster by its administrator. It contains
	// the UID of the management cluster that acts for the Cluster from now on,
	// regardless of the records. All others only read.
	TakeOverAnnotation = "nova-platform.io/take-over"
)

// InfrastructureCluster's and NovaControlPlane's ManagementClusterMatches
// condition and corresponding reasons.
const (
	// ConditionType is true unless the record in an annotation of the object names another
	// management cluster. Ready of the infrastructure cluster depends on it.
	ConditionType = "ManagementClusterMatches"

	// MatchesReason: this management cluster manages the cluster.
	//
	// Action: none.
	MatchesReason = "ManagementClusterMatches"

	// OtherReason: the objects are a copy. They belong to another management cluster, and
	// the managers change nothing outside of this one. Ready of the infrastructure
	// cluster, of NovaConfigs and of machines with pending actions has the same reason.
	//
	// Action: after a move or a restore take over, with the command in the message; see
	// docs/day2.md#an-old-backup.
	OtherReason = "OtherManagementCluster"
)

// Fence identifies the management cluster that a manager runs in. The zero
// value records nothing and allows everything; it is for tests.
type Fence struct{ uid types.UID }

// For returns the fence of the management cluster with a UID.
func For(uid types.UID) Fence { return Fence{uid: uid} }

// Read returns the fence of the management cluster that reader reads from.
func Read(ctx context.Context, reader client.Reader) (Fence, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind)
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return Fence{}, fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return Fence{}, errors.New("reading the UID of namespace " + metav1.NamespaceSystem + ": it has none")
	}
	return For(namespace.UID), nil
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// Record sets the record on an object that has none, and reports whether it
// did. The caller writes the object.
func (f Fence) Record(o metav1.Object) bool {
	noted := o.GetAnnotations()
	if f.uid == "" || noted[RecordAnnotation] != "" {
		return false
	}
	if noted == nil {
		noted = map[string]string{}
	}
	noted[RecordAnnotation] = string(f.uid)
	o.SetAnnotations(noted)
	return true
}

// Check returns an *OtherError unless this management cluster may act for a
// Cluster. The annotation of the Cluster decides, and without one the records
// of the objects. The Cluster may be nil: only the records decide then.
func (f Fence) Check(cluster *clusterv1.Cluster, recorded ...metav1.Object) error {
	if f.uid == "" {
		return nil
	}
	if cluster != nil {
		if owner := cluster.Annotations[TakeOverAnnotation]; owner != "" {
			return f.compare(cluster, owner)
		}
	}
	for _, o := range recorded {
		if isNil(o) {
			continue
		}
		if err := f.compare(cluster, o.GetAnnotations()[RecordAnnotation]); err != nil {
			return err
		}
	}
	return nil
}

func isNil(o metav1.Object) bool {
	return o == nil || reflect.ValueOf(o).Kind() == reflect.Pointer && reflect.ValueOf(o).IsNil()
}

func (f Fence) compare(cluster *clusterv1.Cluster, owner string) error {
	if owner == "" || owner == string(f.uid) {
		return nil
	}
	other := &OtherError{Owner: owner, Own: string(f.uid)}
	if cluster != nil {
		other.Cluster = client.ObjectKeyFromObject(cluster)
	}
	return other
}

// OtherError means that another management cluster acts for a Cluster.
type OtherError struct {
	// Owner is the UID of that management cluster, and Own the UID of this one.
	Owner, Own string
	// Cluster is empty if the Cluster is deleted.
	Cluster client.ObjectKey
}

func (e *OtherError) Error() string {
	target := "the Cluster"
	if e.Cluster.Name != "" {
		target = fmt.Sprintf("cluster %s -n %s", e.Cluster.Name, e.Cluster.Namespace)
	}
	return fmt.Sprintf("the cluster belongs to the management cluster %s and this is %s: nothing is changed or deleted outside of it; "+
		"to take the cluster over, stop the other one, then: kubectl annotate %s --overwrite %s=%s",
		e.Owner, e.Own, target, TakeOverAnnotation, e.Own)
}

// IsOther reports whether err means that another management cluster acts.
func IsOther(err error) bool {
	_, is := errors.AsType[*OtherError](err)
	return is
}

// Changed reports whether an update of a Cluster changes the management cluster
// that acts for it.
func Changed(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[TakeOverAnnotation] != e.ObjectNew.GetAnnotations()[TakeOverAnnotation]
}

// Condition returns the condition for the result of Check.
func Condition(err error) metav1.Condition {
	if other, is := errors.AsType[*OtherError](err); is {
		text := other.Error()
		return metav1.Condition{
			Type: ConditionType, Status: metav1.ConditionFalse, Reason: OtherReason,
			Message: "T" + text[1:],
		}
	}
	return metav1.Condition{Type: ConditionType, Status: metav1.ConditionTrue, Reason: MatchesReason}
}
