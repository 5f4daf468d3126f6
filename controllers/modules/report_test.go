package modules

import (
	"errors"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

func TestAccount(t *testing.T) {
	set := &addonsv1.NovaModuleSet{Spec: addonsv1.NovaModuleSetSpec{Release: addonsv1.Release{Tag: "v2"}}}
	content := modules.ContentOf(&set.Spec)
	current := content.Revision()
	early, lately := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	at := func(revision string, since time.Time) *piece {
		return &piece{object: &kustomizev1.Kustomization{}, revision: revision, since: since}
	}
	going := at(current, lately)
	going.object.SetDeletionTimestamp(&metav1.Time{Time: lately})
	cases := map[string]struct {
		delivery delivery
		site     site
		well     bool
		want     report
	}{
		"Ready":       {delivery{pieces: []*piece{at(current, early)}}, site{}, true, report{revision: current, since: early, ready: true, reachable: true}},
		"Earlier":     {delivery{pieces: []*piece{at("1", early)}}, site{}, true, report{revision: "1", since: early, ready: true, reachable: true}},
		"OnItsWay":    {delivery{pieces: []*piece{at("1", early), at(current, lately)}}, site{}, true, report{revision: current, since: lately, reachable: true}},
		"NotReady":    {delivery{pieces: []*piece{at(current, early)}, order: []string{"a"}}, site{}, false, report{revision: current, since: early, notReady: 1, reachable: true}},
		"NothingToDo": {delivery{}, site{}, true, report{revision: current, ready: true, reachable: true}},
		"NothingYet":  {delivery{order: []string{"a"}}, site{}, false, report{notReady: 1, reachable: true}},
		"LastGoing":   {delivery{pieces: []*piece{going}}, site{}, true, report{reachable: true}},
		"Silent":      {delivery{pieces: []*piece{at("1", early)}}, site{silence: errors.New("no")}, false, report{revision: "1", since: early}},
		"NotUp":       {delivery{reason: addonsv1.WaitingForControlPlaneReason}, site{}, false, report{}},
		"Refused":     {delivery{pieces: []*piece{at("1", early)}, refused: current}, site{}, false, report{revision: "1", since: early, reachable: true, refused: current}},
		"Paused": {
			delivery{}, site{cluster: &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}}, false,
			report{reachable: true, paused: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.delivery.set, tc.delivery.site = set, &tc.site
			if got := tc.delivery.account(tc.well); got != tc.want {
				t.Errorf("account() = %+v, want %+v", got, tc.want)
			}
		})
	}
}
