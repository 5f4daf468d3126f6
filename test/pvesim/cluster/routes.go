package cluster

import "sync"

// handlers are the handlers by method and path. Each operation of the schema has
// one, except that for tickets, which belongs to the server.
var handlers = sync.OnceValue(func() map[string]handler {
	const (
		vm      = "/nodes/{node}/qemu/{vmid}"
		status  = vm + "/status"
		agent   = vm + "/agent"
		storage = "/nodes/{node}/storage/{storage}"
		tasks   = "/nodes/{node}/tasks"
	)
	return map[string]handler{
		"GET /version":            version,
		"GET /access/permissions": permissions,

		"GET /cluster/resources":               resources,
		"GET /cluster/tasks":                   clusterTasks,
		"GET /cluster/nextid":                  nextID,
		"GET /cluster/status":                  clusterStatus,
		"GET /cluster/options":                 clusterOptions,
		"GET /cluster/ha/resources":            listHA,
		"POST /cluster/ha/resources":           addHA,
		"GET /cluster/ha/resources/{sid}":      getHA,
		"PUT /cluster/ha/resources/{sid}":      updateHA,
		"DELETE /cluster/ha/resources/{sid}":   deleteHA,
		"GET /cluster/ha/rules":                listRules,
		"POST /cluster/ha/rules":               setRule(true),
		"GET /cluster/ha/rules/{rule}":         getRule,
		"PUT /cluster/ha/rules/{rule}":         setRule(false),
		"DELETE /cluster/ha/rules/{rule}":      deleteRule,
		"GET /cluster/mapping/pci":             listMappings,
		"GET /cluster/mapping/pci/{id}":        getMapping,
		"GET /cluster/sdn/vnets":               listVNets,
		"GET /cluster/sdn/zones":               listZones,
		"GET /nodes":                           listNodes,
		"GET /nodes/{node}/status":             nodeStatus,
		"GET /nodes/{node}/certificates/info":  certificates,
		"GET /nodes/{node}/version":            version,
		"GET /nodes/{node}/network":            listNetworks,
		"GET /nodes/{node}/storage":            listStorages(true),
		"GET " + storage + "/status":           storageStatus,
		"GET " + storage + "/content":          listContent,
		"POST " + storage + "/content":         allocVolume,
		"GET " + storage + "/content/{volume}": getVolume,

		"DELETE " + storage + "/content/{volume}": deleteVolume,
		"POST " + storage + "/upload":             upload,

		"GET " + tasks:                             nodeTasks,
		"GET " + tasks + "/{upid}/status":          taskStatus,
		"GET " + tasks + "/{upid}/log":             taskLog,
		"DELETE " + tasks + "/{upid}":              stopTask,
		"GET /nodes/{node}/qemu":                   listVMs,
		"POST /nodes/{node}/qemu":                  createVM,
		"DELETE " + vm:                             deleteVM,
		"GET " + vm + "/config":                    vmConfig,
		"POST " + vm + "/config":                   updateConfig(false),
		"PUT " + vm + "/config":                    updateConfig(true),
		"GET " + vm + "/pending":                   vmPending,
		"POST " + vm + "/clone":                    cloneVM,
		"PUT " + vm + "/resize":                    resizeDisk,
		"PUT " + vm + "/unlink":                    unlinkDisks,
		"POST " + vm + "/move_disk":                moveDisk,
		"POST " + vm + "/migrate":                  migrateVM,
		"POST " + vm + "/template":                 makeTemplate,
		"POST " + vm + "/snapshot":                 createSnapshot,
		"DELETE " + vm + "/snapshot/{snapname}":    deleteSnapshot,
		"GET " + status + "/current":               vmStatus,
		"POST " + status + "/start":                startRequest,
		"POST " + status + "/stop":                 stopRequest,
		"POST " + status + "/shutdown":             shutdownRequest,
		"POST " + status + "/reset":                resetRequest("qmreset", false),
		"POST " + status + "/reboot":               resetRequest("qmreboot", true),
		"POST " + status + "/suspend":              pauseRequest("qmpause", true),
		"POST " + status + "/resume":               pauseRequest("qmresume", false),
		"POST " + agent + "/ping":                  withAgent(pingAgent),
		"GET " + agent + "/get-host-name":          withAgent(agentHostName),
		"GET " + agent + "/get-osinfo":             withAgent(agentSystem),
		"GET " + agent + "/file-read":              withAgent(agentReadFile),
		"GET " + agent + "/network-get-interfaces": withAgent(agentInterfaces),

		"GET /pools":             listPools,
		"POST /pools":            createPool,
		"PUT /pools":             updatePool,
		"DELETE /pools":          deletePool,
		"GET /pools/{poolid}":    getPool,
		"PUT /pools/{poolid}":    updatePool,
		"DELETE /pools/{poolid}": deletePool,
		"GET /storage":           listStorages(false),
		"GET /storage/{storage}": getStorage,
	}
})

// permissions handles GET /access/permissions.
func permissions(q *call) (any, error) {
	user := q.user
	if q.has("userid") && q.text("userid") != user {
		if err := q.require("/access", "Sys.Audit"); err != nil {
			return nil, err
		}
		user = q.text("userid")
	}
	paths := []string{"/", "/access", "/nodes", "/pool", "/sdn", "/storage", "/vms", "/mapping"}
	if q.has("path") {
		paths = []string{q.text("path")}
	} else {
		paths = append(paths, q.c.access.Paths()...)
	}
	out := map[string]any{}
	for _, path := range paths {
		privileges := map[string]any{}
		for name, propagates := range q.c.access.Permissions(user, path) {
			privileges[name] = bit(propagates)
		}
		if len(privileges) > 0 {
			out[path] = privileges
		}
	}
	return out, nil
}

// clusterOptions handles GET /cluster/options.
func clusterOptions(q *call) (any, error) {
	out := map[string]any{"allowed-tags": []string{}}
	if q.c.access.Has(q.user, "/", "Sys.Audit") {
		out["mac_prefix"], out["keyboard"] = "BC:24:11", "en-us"
	}
	return out, nil
}
