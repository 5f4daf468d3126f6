// Package access has the users, API tokens, roles and permissions of a simulated
// Proxmox VE cluster: PVE::AccessControl and PVE::RPCEnvironment of
// github.com/proxmox/pve-access-control, commit of the middle of 2026.
//
// Roles are granted on paths to users, groups and tokens, with or without
// propagation. A more specific entry replaces the ones above it. A token with
// privilege separation has only the privileges that it and its user have. Pools
// grant their privileges on their members, and only there.
//
// Second factors, realms other than passwords, and the deletion of users are not
// simulated. The package does not lock: its caller does.
package access
