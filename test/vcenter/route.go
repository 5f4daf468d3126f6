package vcenter

import (
	"crypto/subtle"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// routed are the calls that operations answers in the simulator's place.
var routed = map[string]map[string]bool{
	"VirtualMachine": {
		methodClone: true, methodRename: true, methodPowerOn: true, methodPowerOff: true, methodReset: true,
		methodSuspend: true, methodSnapshot: true, methodRemoveSnapshots: true, methodConsolidate: true,
		methodRevertToCurrent: true, methodRelocate: true, methodUpgrade: true,
		methodReconfigure: true, methodDestroy: true, methodShutdownGuest: true, methodRebootGuest: true,
	},
	"VirtualMachineSnapshot": {methodRemoveSnapshot: true, methodRevert: true},
	"Folder":                 {methodCreate: true},
	"ClusterComputeResource": {methodReconfigureCluster: true},
	"EnvironmentBrowser":     {"QueryConfigOption": true, "QueryConfigOptionEx": true},
	"StorageResourceManager": {"RecommendDatastores": true},
	"PropertyCollector": {
		"RetrieveProperties": true, "RetrievePropertiesEx": true,
		"CreateFilter": true, "CreatePropertyCollector": true, "DestroyPropertyCollector": true,
		methodWaitForUpdates: true, "CancelWaitForUpdates": true,
	},
	"PropertyFilter":       {"DestroyPropertyFilter": true},
	"SessionManager":       {"Login": true, "Logout": true},
	"AuthorizationManager": {"HasPrivilegeOnEntities": true, "SetEntityPermissions": true},
}

// operations holds one Go method for each routed call; the simulator finds it
// by name. A managed object comes first in it because the simulator takes
// everything in its registry for one.
type operations struct {
	mo.ExtensibleManagedObject
	s *Server
}

func newOperations(s *Server) *operations {
	o := &operations{s: s}
	o.Self = types.ManagedObjectReference{Type: "NovaOperations", Value: "NovaOperations"}
	s.svc.Context.Map.Put(o)
	return o
}

// Lock and Unlock opt out of the simulator's lock per object: the inventory
// has one of its own, and long polls may hold none.
func (o *operations) Lock() {}

// Unlock does nothing, as Lock.
func (o *operations) Unlock() {}

// route is called by the simulator before each call. A session looks up its
// target again afterwards, so the target itself is changed too.
func (s *Server) route(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if ctx.Session != nil {
		s.rememberSession(ctx)
	}
	if s.isHidden(ctx, method.This) {
		return nil, &types.NoPermission{Object: &method.This, PrivilegeId: "System.View"}
	}
	if _, refused := s.refuse(ctx, method); refused != nil {
		return nil, refused
	}
	if routed[method.This.Type][method.Name] {
		method.This = s.ops.Self
		return s.ops, nil
	}
	if method.This.Type == "PropertyCollector" {
		// The simulator knows only the session's own collector; the result of a
		// read does not depend on the collector.
		method.This = s.svc.Context.Map.Get(serviceInstance).(*simulator.ServiceInstance).Content.PropertyCollector
	}
	return nil, nil
}

func (s *Server) rememberSession(ctx *simulator.Context) {
	copied := *ctx
	s.sessionsMu.Lock()
	defer s.sessionsMu.Unlock()
	s.sessions[ctx.Session.Key] = &copied
}

// ExpireSessions ends all sessions: every later call on one of them, and every
// long poll under way, is answered NotAuthenticated.
func (s *Server) ExpireSessions() {
	s.world.Lock()
	defer s.world.Unlock()
	s.sessionsMu.Lock()
	sessions := s.sessions
	s.sessions = map[string]*simulator.Context{}
	s.sessionsMu.Unlock()
	for key, ctx := range sessions {
		ctx.Map.SessionManager().Logout(ctx, &types.Logout{})
		s.watch.endSession(key)
	}
}

// isAccount reports whether a login is that of the server's own account, or of a
// user of Single Sign-On.
func (s *Server) isAccount(req *types.Login) bool {
	account := s.Userinfo()
	if req.UserName != account.Username() {
		return s.isUser(req)
	}
	want, _ := account.Password()
	user := subtle.ConstantTimeCompare([]byte(req.UserName), []byte(account.Username()))
	password := subtle.ConstantTimeCompare([]byte(req.Password), []byte(want))
	return user&password == 1
}

// Login accepts an account, and returns vCenter's message to all others.
func (o *operations) Login(ctx *simulator.Context, req *types.Login) soap.HasFault {
	if !o.s.isAccount(req) {
		return &methods.LoginBody{Fault_: soapFault(&types.InvalidLogin{})}
	}
	return ctx.Map.SessionManager().Login(ctx, req)
}

// Logout ends the session and its long polls.
func (o *operations) Logout(ctx *simulator.Context, req *types.Logout) soap.HasFault {
	o.s.sessionsMu.Lock()
	delete(o.s.sessions, ctx.Session.Key)
	o.s.sessionsMu.Unlock()
	o.s.watch.endSession(ctx.Session.Key)
	return ctx.Map.SessionManager().Logout(ctx, req)
}
