package machine

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestRetryResult(t *testing.T) {
	passes := errors.New("the host is full")
	terminal := &hypervisor.Error{Terminal: true, Err: errors.New("there is no such network")}
	going := metav1.Now()
	cases := map[string]struct {
		failure      error
		failedBefore bool
		deleted      *metav1.Time
		timeLeft     time.Duration
		want         time.Duration
	}{
		"Passes":           {failure: passes, want: time.Minute},
		"PassesEarlier":    {failure: passes, failedBefore: true, want: time.Minute},
		"Terminal":         {failure: terminal},
		"TerminalEarlier":  {failure: terminal, failedBefore: true, want: time.Minute},
		"TerminalDeleting": {failure: terminal, deleted: &going, want: time.Minute},
		"LittlePatience":   {failure: passes, deleted: &going, timeLeft: time.Second, want: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &vspherev1.NovaVSphereMachine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}
			s := scope[*vspherev1.NovaVSphereMachine]{infra: m, failure: tc.failure, failedBefore: tc.failedBefore, shutdownTimeLeft: tc.timeLeft}
			if got := s.retryResult(time.Minute).RequeueAfter; got != tc.want {
				t.Errorf("again() = %s, want %s", got, tc.want)
			}
		})
	}
}
