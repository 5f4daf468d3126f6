package ovirtsim

import (
	"net/http"
	"testing"
	"time"
)

func TestLanguageOfFaults(t *testing.T) {
	for _, test := range []struct{ server, accepts, words string }{
		{"", "", "Имя уже используется"},
		{"", "en-US", "name is already in use"},
		{"", "en-US,en;q=0.5", "name is already in use"},
		{"", "ru-RU,en;q=0.5", "Имя уже используется"},
		{english, "", "name is already in use"},
	} {
		t.Run(test.server+" "+test.accepts, func(t *testing.T) {
			e := newEngine(t, func(o *Options) { o.Language = test.server })
			e.vm("a", "")
			e.speaks = test.accepts
			e.refuse("POST", "/vms", vmBody("a", ""), http.StatusConflict, test.words)
		})
	}
}

// A disk that is in a snapshot cannot be detached from its VM.
func TestDiskInSnapshotStays(t *testing.T) {
	e := newEngine(t)
	made := e.must("POST", "/vms?clone=true", vmBody("a", ""))
	e.clock.Advance(time.Minute)
	path := "/vms/" + made.id()
	disk := e.must("GET", path+"/diskattachments", "").get("disk_attachment").id()
	snap := e.must("POST", path+"/snapshots", "<snapshot><description>backup</description></snapshot>").id()
	e.clock.Advance(time.Minute)
	e.refuse("DELETE", path+"/diskattachments/"+disk, "", http.StatusConflict, "already configured in a snapshot")
	e.refuse("DELETE", path+"?detach_only=true", "", http.StatusConflict, "snapshots exist")
	e.must("DELETE", path+"/snapshots/"+snap, "")
	e.clock.Advance(time.Minute)
	e.must("DELETE", path+"/diskattachments/"+disk, "")
}
