package v1beta2

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestIdentityOf(t *testing.T) {
	owner := func(apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner"}}
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: "label"}
	for name, tc := range map[string]struct {
		ref    IdentityReference
		labels map[string]string
		owners []metav1.OwnerReference
		want   IdentityReference
	}{
		"NoKind":          {ref: IdentityReference{Name: "login"}, want: IdentityReference{Kind: "Secret", Name: "login"}},
		"Secret":          {ref: IdentityReference{Kind: "Secret", Name: "login"}, want: IdentityReference{Kind: "Secret", Name: "login"}},
		"Identity":        {ref: IdentityReference{Kind: "NovaVSphereIdentity", Name: "one"}, want: IdentityReference{Kind: "NovaVSphereIdentity", Name: "one"}},
		"NamedAndOwned":   {ref: IdentityReference{Name: "login"}, labels: labels, owners: owner("cluster.x-k8s.io/v1beta2", "Cluster"), want: IdentityReference{Kind: "Secret", Name: "login"}},
		"Nothing":         {want: IdentityReference{Kind: "Secret", Name: "infra-credentials"}},
		"Label":           {labels: labels, want: IdentityReference{Kind: "Secret", Name: "label-credentials"}},
		"Owner":           {labels: labels, owners: owner("cluster.x-k8s.io/v1beta2", "Cluster"), want: IdentityReference{Kind: "Secret", Name: "owner-credentials"}},
		"OwnerOlder":      {owners: owner("cluster.x-k8s.io/v1beta1", "Cluster"), want: IdentityReference{Kind: "Secret", Name: "owner-credentials"}},
		"OtherGroup":      {owners: owner("cluster.x-k8s.io.example.com/v1", "Cluster"), want: IdentityReference{Kind: "Secret", Name: "infra-credentials"}},
		"OtherKind":       {labels: labels, owners: owner("cluster.x-k8s.io/v1beta2", "ClusterClass"), want: IdentityReference{Kind: "Secret", Name: "label-credentials"}},
		"KindWithoutName": {ref: IdentityReference{Kind: "NovaVSphereIdentity"}, want: IdentityReference{Kind: "Secret", Name: "infra-credentials"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &metav1.ObjectMeta{Name: "infra", Labels: tc.labels, OwnerReferences: tc.owners}
			if got := IdentityOf(c, &ClusterSpec{IdentityRef: tc.ref}); got != tc.want {
				t.Errorf("IdentityOf() = %v, want %v", got, tc.want)
			}
		})
	}
}
