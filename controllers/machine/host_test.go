package machine

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyClusterctlConflict(t *testing.T) {
	by := func(managers ...string) error {
		var causes []metav1.StatusCause
		for _, m := range managers {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + m})
		}
		return apierrors.NewApplyConflict(causes, "conflict")
	}
	const restored = `"clusterctl" using cluster.x-k8s.io/v1beta2 at 2026-01-01T00:00:00Z`
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"Nothing":      {nil, false},
		"Restored":     {by(restored), true},
		"Wrapped":      {fmt.Errorf("applying: %w", by(restored)), true},
		"SomebodyElse": {by(`"kubectl-label" using cluster.x-k8s.io/v1beta2`), false},
		"AlikeInName":  {by(`"clusterctl-of-ours"`), false},
		"BothOfThem":   {by(restored, `"team"`), false},
		"NobodyNamed":  {by(), false},
		"OldVersion":   {apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m", errors.New("UID")), false},
		"OtherError":   {errors.New("refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := onlyClusterctlConflict(tc.err); got != tc.want {
				t.Errorf("onlyRestored() = %t, want %t", got, tc.want)
			}
		})
	}
}
