package pki

import (
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// role is a role of a PKI engine. It limits subject and use of the certificates that
// are signed by it. Roles cannot limit addresses: only nova-bootstrap and the machine
// that initializes a cluster may sign by roles with addresses.
type role struct {
	name      string
	authority certificates.Authority
	// domains are the common names and DNS names, with globs if globs is set. Any
	// name is allowed if there is none.
	domains      []string
	globs        bool
	organization string
	client       bool
	server       bool
}

// Roles for certificates that the managers issue or approve.
const (
	// roleManagers and rolePermissions are for the managers' own users.
	roleManagers    = "managers"
	rolePermissions = "permissions"
	// roleAdministrator is for the kubeconfig.
	roleAdministrator = "administrator"
	// roleMachines is for machines that join.
	roleMachines = "machines"
	// RoleKubeletClient and RoleKubeletServing are for kubelets.
	RoleKubeletClient  = certificates.KubeletClient
	RoleKubeletServing = "kubelet-serving"
	// roleEtcdManagers is for the managers' connections to etcd.
	roleEtcdManagers = "etcd-managers"
)

// managers are the users of the managers in workload clusters.
var managers = []string{"nova-control-plane", "nova-bootstrap"}

// roles returns the roles of the engines of a cluster.
func roles(externalEtcd bool) []role {
	all := []role{
		{name: roleManagers, authority: certificates.Kubernetes, domains: managers, organization: "nova:managers", client: true},
		{name: rolePermissions, authority: certificates.Kubernetes, domains: managers, organization: "system:masters", client: true},
		{name: roleAdministrator, authority: certificates.Kubernetes, domains: []string{"kubernetes-admin"}, organization: "nova:cluster-admins", client: true},
		{name: roleMachines, authority: certificates.Kubernetes, domains: []string{"nova:machine:*"}, globs: true, organization: "system:bootstrappers:nova", client: true},
		{name: RoleKubeletServing, authority: certificates.Kubernetes, organization: "system:nodes", server: true},
	}
	if !externalEtcd {
		all = append(all, role{name: roleEtcdManagers, authority: certificates.Etcd, domains: managers, client: true})
	}
	for _, c := range certificates.Of(true, externalEtcd) {
		r := role{name: c.Name, authority: c.Authority, organization: c.Organization, client: c.Client, server: c.Server}
		switch {
		case c.Server:
			// Its names are those of the machine and of the API server.
		case c.CommonName != "":
			r.domains = []string{c.CommonName}
		default:
			r.domains, r.globs = []string{c.Prefix + "*"}, true
		}
		all = append(all, r)
	}
	return all
}

// settings returns the settings of the role in the vault.
func (r role) settings() map[string]any {
	return map[string]any{
		"allowed_domains":                    r.domains,
		"allow_any_name":                     len(r.domains) == 0,
		"allow_bare_domains":                 !r.globs,
		"allow_glob_domains":                 r.globs,
		"allow_subdomains":                   false,
		"allow_wildcard_certificates":        false,
		"allow_localhost":                    r.server,
		"allow_ip_sans":                      r.server,
		"allowed_uri_sans":                   []string{},
		"allowed_other_sans":                 []string{},
		"enforce_hostnames":                  false,
		"organization":                       organizations(r.organization),
		"client_flag":                        r.client,
		"server_flag":                        r.server,
		"code_signing_flag":                  false,
		"email_protection_flag":              false,
		"key_type":                           "any",
		"key_usage":                          []string{"DigitalSignature"},
		"ext_key_usage":                      []string{},
		"use_csr_common_name":                false,
		"use_csr_sans":                       false,
		"require_cn":                         true,
		"basic_constraints_valid_for_non_ca": true,
		"no_store":                           true,
		"not_before_duration":                int64(clockSkew / time.Second),
		"max_ttl":                            int64(maxLeafTTL / time.Second),
		"ttl":                                int64(maxLeafTTL / time.Second),
	}
}

func organizations(name string) []string {
	if name == "" {
		return []string{}
	}
	return []string{name}
}

// roleOf returns the role for a client certificate that a manager requests.
func roleOf(request ClientRequest) string {
	group := strings.Join(request.Organizations, ",")
	for _, r := range roles(true) {
		if r.authority == certificates.Kubernetes && r.client && !r.server && group != "" && r.organization == group && r.allows(request.CommonName) {
			return r.name
		}
	}
	return ""
}

// allows reports whether a role allows a common name.
func (r role) allows(name string) bool {
	return slices.ContainsFunc(r.domains, func(domain string) bool {
		prefix, glob := strings.CutSuffix(domain, "*")
		return domain == name || glob && r.globs && strings.HasPrefix(name, prefix) && name != prefix
	})
}
