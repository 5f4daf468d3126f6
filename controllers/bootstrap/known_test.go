package bootstrap

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// joinRequest is an open request of a machine's credential, with a key of its own.
func joinRequest(t *testing.T, name, machine string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: joinUserPrefix + machine,
			Usages: joinUsages, Request: newRequest(t, machine, nil),
		},
	}
}

// At most one key of a machine is approved, however late the cache is.
func TestJudgeOpenApprovesOneKey(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// approved are those of the requests that the tenant knows to be approved
		// and the cache does not.
		approved []string
		// fails is what writing the first judgement comes to.
		fails error
		want  map[string]certificatesv1.RequestConditionType
	}{
		"BothOpen": {
			reason: "the second is judged with what became of the first",
			want:   map[string]certificatesv1.RequestConditionType{"first": certificatesv1.CertificateApproved, "second": certificatesv1.CertificateDenied},
		},
		"LateCache": {
			reason: "what was approved is read past the cache", approved: []string{"before"},
			want: map[string]certificatesv1.RequestConditionType{"first": certificatesv1.CertificateDenied, "second": certificatesv1.CertificateDenied},
		},
		"Unsure": {
			reason: "the first may have been approved all the same", fails: errors.New("timeout"),
			want: map[string]certificatesv1.RequestConditionType{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*certificatesv1.CertificateSigningRequest{joinRequest(t, "first", "w-1"), joinRequest(t, "second", "w-1")}
			tenant := fake.NewClientBuilder()
			for _, csr := range all {
				tenant.WithObjects(csr.DeepCopy())
			}
			for _, name := range tc.approved {
				csr := joinRequest(t, name, "w-1")
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
				tenant.WithObjects(csr)
			}
			writes := 0
			ruled := map[string]certificatesv1.RequestConditionType{}
			tenant.WithIndex(&certificatesv1.CertificateSigningRequest{}, "spec.signerName", func(o client.Object) []string {
				return []string{o.(*certificatesv1.CertificateSigningRequest).Spec.SignerName}
			}).WithInterceptorFuncs(interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
					if writes++; writes == 1 && tc.fails != nil {
						return tc.fails
					}
					ruled[o.GetName()] = o.(*certificatesv1.CertificateSigningRequest).Status.Conditions[0].Type
					return nil
				},
			})
			machine := aMachine("w-1")
			machine.UID = "w-1"
			r := &RequestReconciler{Recorder: events.NewFakeRecorder(10)}
			_, err := r.judgeOpen(t.Context(), all, &knownRequests{tenant: tenant.Build(), all: all}, []*clusterv1.Machine{machine})
			if !errors.Is(err, tc.fails) {
				t.Errorf("%s: err = %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, ruled); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
