package modules

import (
	"errors"
	"reflect"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

func TestClusterReport(t *testing.T) {
	set := &addonsv1.NovaModuleSet{Spec: addonsv1.NovaModuleSetSpec{Release: addonsv1.Release{Tag: "v2"}}}
	content := modules.ContentOf(&set.Spec)
	current := content.Revision()
	early, lately := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	at := func(revision string, since time.Time) *flux.Object {
		return &flux.Object{Object: &kustomizev1.Kustomization{}, Revision: revision, Since: since}
	}
	going := at(current, lately)
	going.Object.SetDeletionTimestamp(&metav1.Time{Time: lately})
	cases := map[string]struct {
		target rolloutTarget
		scope  clusterScope
		well   bool
		want   clusterReport
	}{
		"Ready":       {rolloutTarget{objects: []*flux.Object{at(current, early)}}, clusterScope{}, true, clusterReport{revision: current, since: early, ready: true, reachable: true}},
		"Earlier":     {rolloutTarget{objects: []*flux.Object{at("1", early)}}, clusterScope{}, true, clusterReport{revision: "1", since: early, ready: true, reachable: true}},
		"OnItsWay":    {rolloutTarget{objects: []*flux.Object{at("1", early), at(current, lately)}}, clusterScope{}, true, clusterReport{revision: current, since: lately, reachable: true}},
		"NotReady":    {rolloutTarget{objects: []*flux.Object{at(current, early)}, order: []string{"a"}}, clusterScope{}, false, clusterReport{revision: current, since: early, notReady: 1, reachable: true}},
		"NothingToDo": {rolloutTarget{}, clusterScope{}, true, clusterReport{revision: current, ready: true, reachable: true}},
		"NothingYet":  {rolloutTarget{order: []string{"a"}}, clusterScope{}, false, clusterReport{notReady: 1, reachable: true}},
		"LastGoing":   {rolloutTarget{objects: []*flux.Object{going}}, clusterScope{}, true, clusterReport{reachable: true}},
		"Silent":      {rolloutTarget{objects: []*flux.Object{at("1", early)}}, clusterScope{unreachable: errors.New("no")}, false, clusterReport{revision: "1", since: early}},
		"NotUp":       {rolloutTarget{reason: addonsv1.WaitingForControlPlaneReason}, clusterScope{}, false, clusterReport{}},
		"Refused":     {rolloutTarget{objects: []*flux.Object{at("1", early)}, unrenderable: current}, clusterScope{}, false, clusterReport{revision: "1", since: early, reachable: true, unrenderable: current}},
		"Paused": {
			rolloutTarget{}, clusterScope{cluster: &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}}, false,
			clusterReport{reachable: true, paused: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.target.set, tc.target.scope = set, &tc.scope
			if got := tc.target.clusterReport(tc.well); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("clusterReport() = %+v, want %+v", got, tc.want)
			}
		})
	}
}
