package machine

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestNext(t *testing.T) {
	up := []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}}
	absent, busy := hypervisor.VM{State: hypervisor.Absent}, hypervisor.VM{State: hypervisor.Busy}
	stopped, booting := hypervisor.VM{State: hypervisor.Stopped}, hypervisor.VM{State: hypervisor.Running}
	running := hypervisor.VM{State: hypervisor.Running, Addresses: up}
	odd, oddBooting, oddUp := stopped, booting, running
	odd.OutOfSync, oddBooting.OutOfSync, oddUp.OutOfSync = "a NIC is missing", "not in its group", "not in its group"
	secretive := running
	secretive.UserData = true
	fresh, known := lifecycle{}, lifecycle{provisioned: true}
	doomed, doomedKnown := lifecycle{deleting: true}, lifecycle{deleting: true, provisioned: true}
	joined, soft := lifecycle{provisioned: true, joined: true}, lifecycle{deleting: true, softShutdown: true, provisioned: true}
	leaving, leavingKnown := lifecycle{machineDeleting: true}, lifecycle{machineDeleting: true, provisioned: true}
	cases := map[string]struct {
		vm   hypervisor.VM
		at   lifecycle
		want action
	}{
		"NoVM":                {absent, fresh, create},
		"Cloning":             {busy, fresh, wait},
		"Cloned":              {stopped, fresh, start},
		"Booting":             {booting, fresh, wait},
		"Up":                  {running, fresh, publish},
		"Lost":                {absent, known, reportMissing},
		"BusyLater":           {busy, known, wait},
		"PoweredOffOutside":   {stopped, known, start},
		"Rebooting":           {booting, known, wait},
		"StillUp":             {running, known, publish},
		"ClonedUnsettled":     {odd, fresh, syncVM},
		"BootingUnsettled":    {oddBooting, fresh, wait},
		"UpUnsettled":         {oddUp, fresh, syncVM},
		"PoweredOffUnsettled": {odd, known, start},
		"UpUnsettledLater":    {oddUp, joined, syncVM},
		"NotJoined":           {secretive, known, publish},
		"Joined":              {secretive, joined, syncVM},
		"JoinedAndCleared":    {running, joined, publish},
		"JoinedAndPoweredOff": {stopped, joined, start},
		"LeaveUnsettled":      {odd, leaving, idle},
		"LeaveUpUnsettled":    {oddUp, leavingKnown, syncVM},
		"SoftUp":              {running, soft, shutdown},
		"SoftBooting":         {booting, soft, shutdown},
		"SoftUnsettled":       {oddUp, soft, shutdown},
		"SoftPoweredOff":      {stopped, soft, destroy},
		"SoftWhileBusy":       {busy, soft, wait},
		"SoftGone":            {absent, soft, release},
		"DeleteUnsettled":     {odd, doomed, destroy},
		"LeaveNeverCreated":   {absent, leaving, idle},
		"LeaveWhileCloning":   {busy, leaving, wait},
		"LeaveCloned":         {stopped, leaving, idle},
		"LeaveBooting":        {booting, leaving, wait},
		"LeaveLost":           {absent, leavingKnown, reportMissing},
		"LeavePoweredOff":     {stopped, leavingKnown, idle},
		"LeaveUp":             {running, leavingKnown, publish},
		"DeleteNeverCreated":  {absent, doomed, release},
		"DeleteWhileCloning":  {busy, doomed, wait},
		"DeleteCloned":        {stopped, doomed, destroy},
		"DeleteBooting":       {booting, doomed, destroy},
		"DeleteUp":            {running, doomed, destroy},
		"DeleteLost":          {absent, doomedKnown, release},
		"DeleteWhileDeleting": {busy, doomedKnown, wait},
		"DeletePoweredOff":    {stopped, doomedKnown, destroy},
		"DeleteUpLater":       {running, doomedKnown, destroy},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := next(tc.vm, tc.at); got != tc.want {
				t.Errorf("next() = %s, want %s", got, tc.want)
			}
		})
	}
}
