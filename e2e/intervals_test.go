package e2e

// intervals are the framework's timeouts and poll intervals, by spec and
// operation: the names are those of its specs. They are long enough for a busy
// computer; an idle one needs a fraction.
func intervals() map[string][]string {
	return map[string][]string{
		"default/wait-controllers":                     {"4m", "1s"},
		"default/wait-cluster":                         {"3m", "1s"},
		"default/wait-control-plane":                   {"8m", "1s"},
		"default/wait-worker-nodes":                    {"8m", "1s"},
		"default/wait-delete-cluster":                  {"5m", "1s"},
		"default/wait-machine-upgrade":                 {"12m", "2s"},
		"default/wait-control-plane-upgrade":           {"12m", "2s"},
		"default/wait-machine-deployment-upgrade":      {"12m", "2s"},
		"default/wait-nodes-ready":                     {"5m", "1s"},
		"default/wait-machine-remediation":             {"8m", "1s"},
		"node-drain/wait-deployment-available":         {"4m", "1s"},
		"node-drain/wait-machine-deleted":              {"6m", "1s"},
		"default/wait-resource-versions-become-stable": {"3m", "5s"},
		"default/wait-resource-versions-remain-stable": {"30s", "5s"},
	}
}
