package cluster

import (
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Each operation of the schema has a handler, and each handler an operation.
func TestHandlers(t *testing.T) {
	known := map[string]bool{}
	for _, o := range schema.Operations() {
		name := o.Method + " " + o.Path
		known[name] = true
		if handlers()[name] == nil && name != "POST /access/ticket" {
			t.Errorf("%s has no handler", name)
		}
	}
	for name := range handlers() {
		if !known[name] {
			t.Errorf("%s is not in the schema", name)
		}
	}
}
