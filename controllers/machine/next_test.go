package machine

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

var syncers = []hypervisor.Syncer[any]{{Name: "UserData", AfterJoin: true}, {Name: "Hardware"}, {Name: "Groups"}}

func noDelay(hypervisor.Syncer[any]) time.Duration { return 0 }

func TestNextSyncer(t *testing.T) {
	cases := map[string]struct {
		state  hypervisor.State
		toSync []string
		joined bool
		want   string
	}{
		"None":                 {hypervisor.Running, nil, true, ""},
		"NotJoined":            {hypervisor.Running, []string{"UserData"}, false, ""},
		"Joined":               {hypervisor.Running, []string{"UserData"}, true, "UserData"},
		"PoweredOff":           {hypervisor.Stopped, []string{"UserData"}, true, ""},
		"NewAndPoweredOff":     {hypervisor.Stopped, []string{"UserData", "Groups"}, false, "Groups"},
		"OrderOfTheList":       {hypervisor.Running, []string{"Groups", "Hardware"}, false, "Hardware"},
		"UserDataFirst":        {hypervisor.Running, []string{"Groups", "UserData"}, true, "UserData"},
		"UserDataWaits":        {hypervisor.Running, []string{"UserData", "Groups"}, false, "Groups"},
		"OtherDriversPartOnly": {hypervisor.Running, []string{"Tags"}, true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, due := nextSyncer(pendingSyncers(syncers, &hypervisor.VM{State: tc.state, ToSync: tc.toSync}, tc.joined), noDelay)
			if got.Name != tc.want || due != (tc.want != "") {
				t.Errorf("nextSyncer() = %q, %t, want %q", got.Name, due, tc.want)
			}
		})
	}
}

// The first part whose retry is not delayed is next. If all are delayed, it is the one that is due first.
func TestNextSyncerAfterFailures(t *testing.T) {
	cases := map[string]struct {
		delays map[string]time.Duration
		want   string
	}{
		"OneIsDelayed": {map[string]time.Duration{"UserData": time.Second}, "Hardware"},
		"OneIsDue":     {map[string]time.Duration{"UserData": -time.Second, "Hardware": -time.Minute}, "UserData"},
		"AllAreDelayed": {map[string]time.Duration{
			"UserData": time.Minute, "Hardware": time.Second, "Groups": time.Second,
		}, "Hardware"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := nextSyncer(syncers, func(s hypervisor.Syncer[any]) time.Duration { return tc.delays[s.Name] })
			if got.Name != tc.want {
				t.Errorf("nextSyncer() = %q, want %q", got.Name, tc.want)
			}
		})
	}
}

func TestNext(t *testing.T) {
	up := []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}}
	absent, busy := hypervisor.VM{State: hypervisor.Absent}, hypervisor.VM{State: hypervisor.Busy}
	stopped, booting := hypervisor.VM{State: hypervisor.Stopped}, hypervisor.VM{State: hypervisor.Running}
	running := hypervisor.VM{State: hypervisor.Running, Addresses: up}
	odd, oddBooting, oddUp := stopped, booting, running
	odd.ToSync, oddBooting.ToSync, oddUp.ToSync = []string{"Hardware"}, []string{"Groups"}, []string{"Groups"}
	secretive := running
	secretive.ToSync = []string{"UserData"}
	fresh, known := lifecycle{}, lifecycle{provisioned: true}
	doomed, doomedKnown := lifecycle{deleting: true}, lifecycle{deleting: true, provisioned: true}
	joined, soft := lifecycle{provisioned: true}, lifecycle{deleting: true, softShutdown: true, provisioned: true}
	leaving, leavingKnown := lifecycle{machineDeleting: true}, lifecycle{machineDeleting: true, provisioned: true}
	cases := map[string]struct {
		vm   hypervisor.VM
		at   lifecycle
		want action
		// joined means that the machine's node is part of the workload cluster.
		joined bool
	}{
		"NoVM":                {absent, fresh, create, false},
		"Cloning":             {busy, fresh, wait, false},
		"Cloned":              {stopped, fresh, start, false},
		"Booting":             {booting, fresh, wait, false},
		"Up":                  {running, fresh, publish, false},
		"Lost":                {absent, known, reportMissing, false},
		"BusyLater":           {busy, known, wait, false},
		"PoweredOffOutside":   {stopped, known, start, false},
		"Rebooting":           {booting, known, wait, false},
		"StillUp":             {running, known, publish, false},
		"ClonedUnsettled":     {odd, fresh, syncVM, false},
		"BootingUnsettled":    {oddBooting, fresh, wait, false},
		"UpUnsettled":         {oddUp, fresh, syncVM, false},
		"PoweredOffUnsettled": {odd, known, start, false},
		"UpUnsettledLater":    {oddUp, joined, syncVM, true},
		"NotJoined":           {secretive, known, publish, false},
		"Joined":              {secretive, joined, syncVM, true},
		"JoinedAndCleared":    {running, joined, publish, true},
		"JoinedAndPoweredOff": {stopped, joined, start, true},
		"LeaveUnsettled":      {odd, leaving, idle, false},
		"LeaveUpUnsettled":    {oddUp, leavingKnown, syncVM, false},
		"SoftUp":              {running, soft, shutdown, false},
		"SoftBooting":         {booting, soft, shutdown, false},
		"SoftUnsettled":       {oddUp, soft, shutdown, false},
		"SoftPoweredOff":      {stopped, soft, destroy, false},
		"SoftWhileBusy":       {busy, soft, wait, false},
		"SoftGone":            {absent, soft, release, false},
		"DeleteUnsettled":     {odd, doomed, destroy, false},
		"LeaveNeverCreated":   {absent, leaving, idle, false},
		"LeaveWhileCloning":   {busy, leaving, wait, false},
		"LeaveCloned":         {stopped, leaving, idle, false},
		"LeaveBooting":        {booting, leaving, wait, false},
		"LeaveLost":           {absent, leavingKnown, reportMissing, false},
		"LeavePoweredOff":     {stopped, leavingKnown, idle, false},
		"LeaveUp":             {running, leavingKnown, publish, false},
		"DeleteNeverCreated":  {absent, doomed, release, false},
		"DeleteWhileCloning":  {busy, doomed, wait, false},
		"DeleteCloned":        {stopped, doomed, destroy, false},
		"DeleteBooting":       {booting, doomed, destroy, false},
		"DeleteUp":            {running, doomed, destroy, false},
		"DeleteLost":          {absent, doomedKnown, release, false},
		"DeleteWhileDeleting": {busy, doomedKnown, wait, false},
		"DeletePoweredOff":    {stopped, doomedKnown, destroy, false},
		"DeleteUpLater":       {running, doomedKnown, destroy, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, tc.at.syncDue = nextSyncer(pendingSyncers(syncers, &tc.vm, tc.joined), noDelay)
			if got := next(tc.vm, tc.at); got != tc.want {
				t.Errorf("next() = %s, want %s", got, tc.want)
			}
		})
	}
}
