package engine

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/measured"
)

// TestClassify uses the messages of the engine, from its AppErrors.properties.
func TestClassify(t *testing.T) {
	engineError := func(status int, text string) error { return &ovirt.Error{Status: status, Detail: text} }
	tests := map[string]struct {
		err     error
		reason  string
		passing bool
	}{
		"name":       {engineError(409, "Cannot add VM. The VM name is already in use, please choose a unique name and try again"), infrav1.NameConflictReason, false},
		"VM locked":  {engineError(409, "Cannot edit VM: VM is locked. Please try again in a few minutes"), infrav1.VMBusyReason, true},
		"disks":      {engineError(409, "Cannot run VM: The following disks are locked: a. Please try again in a few minutes"), infrav1.VMBusyReason, true},
		"name lock":  {engineError(409, "Cannot add VM. Related operation is currently in progress. Please try again later"), infrav1.VMBusyReason, true},
		"template":   {engineError(409, "Template's Image is locked (temporarily)"), infrav1.VMBusyReason, true},
		"protected":  {engineError(409, "Cannot remove VM. Delete protection is enabled. In order to delete, disable Delete protection first"), infrav1.DeleteProtectedReason, false},
		"no host":    {engineError(409, "Cannot run VM. There is no host that satisfies current scheduling constraints. See below for details:"), infrav1.InsufficientResourcesReason, false},
		"full":       {engineError(409, "Cannot add VM. Low disk space on Storage Domain data1"), infrav1.InsufficientResourcesReason, false},
		"profile":    {engineError(409, "Cannot add Interface. The specified VM network interface profile doesn't exist"), infrav1.PlacementNotFoundReason, false},
		"entity":     {engineError(404, "Entity not found: Cluster: id=x"), infrav1.PlacementNotFoundReason, false},
		"invalid":    {engineError(400, "Minimum number of CPU per socket cannot be less than 1"), infrav1.InvalidSpecReason, false},
		"forbidden":  {engineError(403, "User is not authorized to perform this action"), infrav1.PermissionDeniedReason, false},
		"unread":     {engineError(403, "query execution failed due to insufficient permissions"), infrav1.PermissionDeniedReason, false},
		"refused":    {engineError(401, "access_denied"), infrav1.CredentialsInvalidReason, false},
		"out":        {&transport.UnreachableError{Err: errors.New("no answer in time")}, infrav1.EndpointUnreachableReason, false},
		"other":      {engineError(500, "boom"), infrav1.HypervisorErrorReason, false},
		"classified": {hypervisor.Failure(infrav1.RequestQueuedReason, "x"), infrav1.RequestQueuedReason, false},
		"no engine":  {errors.New("x"), "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Classify("e", tt.err)
			if hypervisor.ReasonFor(got, "") != tt.reason || hypervisor.IsTransient(got) != tt.passing {
				t.Errorf("got %s, passing %t", hypervisor.ReasonFor(got, ""), hypervisor.IsTransient(got))
			}
			if !strings.Contains(got.Error(), tt.err.Error()) {
				t.Errorf("%q is lost in %q", tt.err, got)
			}
		})
	}
	if Classify("e", nil) != nil {
		t.Error("nil became an error")
	}
	if !IsNotFound(engineError(http.StatusNotFound, "")) || IsNotFound(nil) || IsNotFound(engineError(409, "")) {
		t.Error("IsNotFound must depend on the status code only")
	}
	if err := Unresolved(infrav1.TemplateNotFoundReason, "template", &ovirt.MissingError{Name: "x"}); hypervisor.ReasonFor(err, "") != infrav1.TemplateNotFoundReason ||
		!strings.HasPrefix(err.Error(), `template "x" does not exist`) {
		t.Errorf("got %v", err)
	}
}

func TestMetrics(t *testing.T) {
	const server = "metrics.example.test"
	m := sessions.NewMeter(provider, server)
	requests := transport.MeterOf(m, http.StatusInternalServerError)
	requests.Request(http.MethodGet, "/vms/{}", "200", time.Second)
	requests.Connections(1)
	requests.Connections(1)
	requests.Connections(-1)
	m.Phase("", sessions.Connecting)
	m.Phase(sessions.Connecting, sessions.Up)
	value := func(name string, labels ...string) float64 {
		got, err := measured.Value(name, append(labels, "provider", "zvirt", "server", server)...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, got := range map[string]float64{
		"requests":    value("nova_hypervisor_requests_total", "method", "GET /vms/{}", "result", "success", "code", "200"),
		"latency":     value("nova_hypervisor_request_seconds", "method", "GET /vms/{}"),
		"connections": value("nova_hypervisor_connections"),
		"sessions":    value("nova_hypervisor_sessions", "state", "Up"),
	} {
		if got != 1 {
			t.Errorf("%s: %g", name, got)
		}
	}
	m.Phase(sessions.Up, "")
	if got := value("nova_hypervisor_sessions", "state", "Up") + value("nova_hypervisor_sessions", "state", "Connecting"); got != 0 {
		t.Errorf("%g sessions are left", got)
	}
}
