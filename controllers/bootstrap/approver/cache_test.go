package approver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// keep returns the fields of a request that the cache keeps.
func keep(t *testing.T, csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	kept, err := keepRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	return kept.(*certificatesv1.CertificateSigningRequest)
}

// The cache keeps little of a request, however large it is, and nothing of a request that is not
// decided.
func TestKeepRequest(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	open := func() *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: "csr-1", UID: "u", ResourceVersion: "7", Annotations: map[string]string{"a": large},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: large}},
			},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:w-1", UID: large,
				Groups: []string{nodesGroup, large}, Extra: map[string]certificatesv1.ExtraValue{"e": {large}},
				Request: []byte("request"), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
			},
		}
	}
	cases := map[string]struct {
		change      func(*certificatesv1.CertificateSigningRequest)
		open, keeps bool
	}{
		"Open": {func(*certificatesv1.CertificateSigningRequest) {}, true, true},
		"Oversized": {func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Spec.Request = bytes.Repeat([]byte("x"), maxRequest+1)
		}, true, false},
		"ManyUsages": {func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Spec.Usages = make([]certificatesv1.KeyUsage, maxUsages+1)
		}, true, false},
		"OtherSigner": {func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.SignerName = large }, true, false},
		"Judged": {func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Message: large}}
		}, false, false},
		"Approved": {func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Message: large}}
		}, false, true},
		"ControlPlane": {func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.SignerName = "nova-platform.io/etcd" }, true, true},
		"Issued":       {func(csr *certificatesv1.CertificateSigningRequest) { csr.Status.Certificate = []byte(large) }, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			csr := open()
			tc.change(csr)
			kept := keep(t, csr)
			data, err := json.Marshal(kept)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 1<<10 {
				t.Errorf("%d bytes are kept", len(data))
			}
			if kept.Name != "csr-1" || kept.UID != "u" || kept.ResourceVersion != "7" {
				t.Errorf("the object is not known anymore: %+v", kept.ObjectMeta)
			}
			if isUnsigned(kept) != (name == "Approved") {
				t.Errorf("isUnsigned() = %t", isUnsigned(kept))
			}
			if isOpen(kept) != tc.open {
				t.Errorf("isOpen() = %t, want %t", !tc.open, tc.open)
			}
			if decided := len(kept.Spec.Request) > 0; decided != tc.keeps {
				t.Errorf("the request is kept: %t, want %t", decided, tc.keeps)
			}
			if tc.keeps && (kept.Spec.Username != csr.Spec.Username || len(kept.Spec.Groups) != 1 || len(kept.Spec.Usages) != 1) {
				t.Errorf("a field that decisions use is missing: %+v", kept.Spec)
			}
		})
	}
}

func requestsOf(user string, count int) []*certificatesv1.CertificateSigningRequest {
	all := make([]*certificatesv1.CertificateSigningRequest, 0, count)
	for i := range count {
		all = append(all, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%05d", user, i), UID: types.UID(fmt.Sprintf("%s-%d", user, i)),
				CreationTimestamp: metav1.Unix(int64(i), 0),
			},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: user},
		})
	}
	return all
}

// Ten thousand requests of one node take only a few slots of a pass, and the request of another
// machine is decided in the same pass.
func TestPickIsFair(t *testing.T) {
	open := append(requestsOf("system:node:bad", 10_000), requestsOf("nova:join:good", 1)...)
	began := time.Now()
	picked, last := pick(open, "")
	if len(picked) != perUser+1 || last != "" {
		t.Fatalf("picked %d requests, last %q", len(picked), last)
	}
	names := map[string]bool{}
	for _, csr := range picked {
		names[csr.Name] = true
	}
	if !names["nova:join:good-00000"] || !names["system:node:bad-09999"] {
		t.Errorf("picked %v, want the newest of each user", names)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %s", took)
	}
}

// If there are more users than one pass has room for, the next passes decide the rest.
func TestPickGoesOn(t *testing.T) {
	var open []*certificatesv1.CertificateSigningRequest
	const users = 3 * perPass
	for i := range users {
		open = append(open, requestsOf(fmt.Sprintf("user-%04d", i), 1)...)
	}
	decided, after, passes := map[string]bool{}, "", 0
	for len(decided) < users && passes < 10 {
		var picked []*certificatesv1.CertificateSigningRequest
		picked, after = pick(open, after)
		if len(picked) > perPass || after == "" {
			t.Fatalf("picked %d requests, continues after %q", len(picked), after)
		}
		for _, csr := range picked {
			decided[csr.Name] = true
		}
		passes++
	}
	if len(decided) != users || passes != 3 {
		t.Errorf("%d requests were decided in %d passes", len(decided), passes)
	}
}
