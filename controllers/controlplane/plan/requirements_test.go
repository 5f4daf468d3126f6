package plan

import (
	"slices"
	"testing"
)

func TestRequirements(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		needs  Requirements
		change func(in *Input)
		want   Action
		on     []string
		keeps  Upkeep
		why    string
	}{
		"None": {reason: "machines may be changed", want: Nothing, keeps: KeepAll, why: "The control plane matches its spec"},
		"Fenced": {
			reason: "another management cluster acts, also during a deletion", needs: Requirements{Fenced: "Another one acts", Deleting: true},
			want: Nothing, keeps: KeepNothing, why: "Another one acts",
		},
		"Infrastructure": {
			reason: "no certificate is created before it", needs: Requirements{InfrastructureMissing: true, EndpointMissing: true},
			want: Wait, keeps: KeepOwners, why: "Waiting for the cluster's infrastructure to be provisioned",
		},
		"FormerSecret": {
			reason: "the Secret must not be adopted", needs: Requirements{FormerSecret: "c-ca", EndpointMissing: true},
			want: Wait, keeps: KeepOwners, why: "Waiting for Secret c-ca of a former cluster to be deleted with it",
		},
		"ExternalSecret": {
			reason: "no CA is created that external etcd does not trust", needs: Requirements{ExternalSecret: "c-etcd", EndpointMissing: true},
			want: Wait, keeps: KeepOwners, why: "Waiting for Secret c-etcd, which external etcd needs",
		},
		"Endpoint": {
			reason: "certificates do not depend on it, the kubeconfig does", needs: Requirements{EndpointMissing: true},
			want: Wait, keeps: KeepCertificates,
			why: "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster",
		},
		"EndpointBeforeRestore": {
			reason: "a restore needs a kubeconfig too", needs: Requirements{EndpointMissing: true},
			change: func(in *Input) { in.Restore = Restore{Next: "r", Prepared: true} }, want: Wait, keeps: KeepCertificates,
			why: "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster",
		},
		"Restore": {
			reason: "machines stay as they are for the restore", change: func(in *Input) { in.Restore = Restore{Next: "r", Prepared: true} },
			want: BeginRestore, keeps: KeepKubeconfig, why: "Restoring etcd for NovaEtcdRestore r",
		},
		"Workers": {
			reason: "workers need the API server for their own deletion", needs: Requirements{Deleting: true, Workers: []string{"MachineDeployment w"}},
			want: Wait, keeps: KeepNothing, why: "Waiting for workers to be deleted first: MachineDeployment w",
		},
		"DeleteAll": {
			reason: "etcd is not needed any more", needs: Requirements{Deleting: true}, change: func(in *Input) { in.Etcd = nil },
			want: DeleteAll, on: []string{"a", "b", "c"}, keeps: KeepNothing, why: "Waiting for machines to be deleted: a, b, c",
		},
		"Deleted": {
			reason: "no machine is left", needs: Requirements{Deleting: true}, change: func(in *Input) { in.Machines = nil },
			want: EndDeletion, keeps: KeepNothing, why: "Deletion completed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := running(3)
			in.Requirements = tc.needs
			if tc.change != nil {
				tc.change(&in)
			}
			d := Decide(in)
			if d.Action != tc.want || d.Upkeep != tc.keeps || d.Reason != tc.why || !slices.Equal(d.Machines, tc.on) {
				t.Errorf("%s: got %+v", tc.reason, d)
			}
			if held := tc.keeps != KeepAll && tc.want != Nothing; held != (d.Hold != "") || held && d.Hold != tc.why {
				t.Errorf("%s: everything else waits: %q", tc.reason, d.Hold)
			}
		})
	}
}
