package approver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
)

// joinRequest returns an open request with a machine's credential and its own key.
func joinRequest(t *testing.T, name, machine string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: joining.UserPrefix + machine,
			Usages: joinUsages, Request: newRequest(t, machine, nil),
		},
	}
}

// At most one key of a machine is approved, however old the cache is and whatever the result of the
// approval was.
func TestDecideOpenApprovesOneKey(t *testing.T) {
	const approved, denied = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied
	for name, tc := range map[string]struct {
		reason string
		// late means that the cache never shows the recorded key, and gone that there is no
		// NovaConfig.
		late, gone bool
		// noted is the key that was certified earlier.
		noted string
		// fails is the error of writing the first decision.
		fails error
		again time.Duration
		want  map[string]certificatesv1.RequestConditionType
	}{
		"BothOpen": {
			reason: "the second is decided with the result of the first", again: permissionsTTL,
			want: map[string]certificatesv1.RequestConditionType{"first": approved, "second": denied},
		},
		"Before": {
			reason: "the request of the key may have been deleted long ago", noted: "sha256:00", again: permissionsTTL,
			want: map[string]certificatesv1.RequestConditionType{"first": denied, "second": denied},
		},
		"LateCache": {
			reason: "the second waits for the cache", late: true, again: staleCacheRetry,
			want: map[string]certificatesv1.RequestConditionType{"first": approved},
		},
		"Unsure": {
			reason: "the first may have been approved anyway", fails: errors.New("timeout"), again: permissionsTTL,
			want: map[string]certificatesv1.RequestConditionType{"second": denied},
		},
		"NoConfig": {reason: "the key cannot be recorded", gone: true, again: pendingRetry},
	} {
		t.Run(name, func(t *testing.T) {
			open := []*certificatesv1.CertificateSigningRequest{joinRequest(t, "first", "w-1"), joinRequest(t, "second", "w-1")}
			writes, decided := 0, map[string]certificatesv1.RequestConditionType(nil)
			workloadClient := clientfake.NewClientBuilder().WithObjects(open[0].DeepCopy(), open[1].DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
					if writes++; writes == 1 && tc.fails != nil {
						return tc.fails
					}
					if decided == nil {
						decided = map[string]certificatesv1.RequestConditionType{}
					}
					decided[o.GetName()] = o.(*certificatesv1.CertificateSigningRequest).Status.Conditions[0].Type
					return nil
				},
			}).Build()
			machine := aMachine("w-1")
			machine.UID, machine.Namespace, machine.Spec.Bootstrap.ConfigRef.Name = "w-1", "ns", "w-1"
			r := &Reconciler{Recorder: events.NewFakeRecorder(10), Client: noting(t, tc.noted, tc.late, tc.gone)}
			result, err := r.decideOpen(t.Context(), open, &clusterFacts{workload: workloadClient, ours: []*clusterv1.Machine{machine}})
			if !errors.Is(err, tc.fails) || result.RequeueAfter != tc.again {
				t.Errorf("%s: err = %v, again after %s, want %s", tc.reason, err, result.RequeueAfter, tc.again)
			}
			if diff := cmp.Diff(tc.want, decided); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// noting returns a client of a management cluster with the NovaConfig w-1, on which a key may be
// recorded. If late is set, it shows the NovaConfig in its first state.
func noting(t *testing.T, key string, late, gone bool) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := bootstrapv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w-1"}}
	if key != "" {
		config.Annotations = map[string]string{bootstrapv1.CertifiedKeyAnnotation: key}
	}
	b := clientfake.NewClientBuilder().WithScheme(scheme)
	if !gone {
		b.WithObjects(config)
	}
	var first *bootstrapv1.NovaConfig
	return b.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if first != nil && late {
				first.DeepCopyInto(o.(*bootstrapv1.NovaConfig))
				return nil
			}
			err := c.Get(ctx, key, o, opts...)
			first = o.DeepCopyObject().(*bootstrapv1.NovaConfig)
			return err
		},
	}).Build()
}
