package ovirt

import (
	"errors"
	"net/http"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
)

func TestRefusal(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   string
		down   bool
	}{
		"fault":           {409, "<fault><detail>[Cannot add VM. The name is taken.]</detail><reason>Operation Failed</reason></fault>", "Cannot add VM. The name is taken", false},
		"fault of action": {409, "<action><fault><detail>[VM is locked.]</detail><reason>x</reason></fault><status>failed</status></action>", "VM is locked", false},
		"no detail":       {400, "<fault><reason>Incomplete parameters</reason></fault>", "Incomplete parameters", false},
		"usage":           {400, "<usage_message><message>Request syntactically incorrect.</message></usage_message>", "Request syntactically incorrect.", false},
		"empty":           {404, "", "the engine answered 404 Not Found", false},
		"page":            {503, "<html><head><title>503</title></head><body>later</body></html>", "the engine answered 503 Service Unavailable", true},
		"fault and 503":   {503, "<fault><reason>Starting</reason></fault>", "Starting", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := refusal(tt.status, []byte(tt.body))
			if err.Error() != tt.want || !IsStatus(err, tt.status) || IsDown(err) != tt.down {
				t.Errorf("got %q, down %t; want %q, %t", err, IsDown(err), tt.want, tt.down)
			}
		})
	}
}

func TestAmbiguous(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"none":           {nil, false},
		"no":             {refusal(http.StatusConflict, nil), false},
		"no answer":      {&transport.UnreachableError{Err: errors.New("gone")}, true},
		"internal error": {refusal(http.StatusInternalServerError, nil), true},
		"page":           {refusal(http.StatusBadGateway, nil), true},
	} {
		if got := IsAmbiguous(tt.err); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestFailedAction(t *testing.T) {
	for body, want := range map[string]bool{
		`<action><status>complete</status></action>`:                                      false,
		`<?xml version="1.0"?><action><fault><reason>x</reason></fault></action>`:         true,
		`<action><status>failed</status></action>`:                                        true,
		`<vm><actions><link rel="start"/></actions><status>failed</status></vm>`:          false,
		`<vms><vm><name>&lt;action&gt;</name></vm></vms>`:                                 false,
		`<action><job id="1"/><status>complete</status><vm><fault/></vm></action>`:        false,
		`<html><body>invalid_grant: &lt;action&gt; the authorization grant</body></html>`: false,
	} {
		if got := failedAction([]byte(body)); got != want {
			t.Errorf("%s: got %t", body, got)
		}
	}
}
