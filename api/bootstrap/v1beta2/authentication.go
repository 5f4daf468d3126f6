package v1beta2

import (
	"cmp"
	"strings"
)

// AuthenticationSpec lets users sign in at the API servers with tokens of OpenID
// Connect issuers. Requests without credentials are limited to /livez, /readyz and
// /healthz.
type AuthenticationSpec struct {
	// issuers are the accepted issuers of tokens. No two may have the same URL.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Issuers []TokenIssuer `json:"issuers,omitempty"`
}

// TokenIssuer is an OpenID Connect issuer, and how its tokens name users.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.starVault)",message="set either url or starVault"
// +kubebuilder:validation:XValidation:rule="!has(self.starVault) || !has(self.discoveryURL)",message="discoveryURL belongs to url, not to starVault"
type TokenIssuer struct {
	// name identifies the issuer. It is also the prefix, with a colon, of the users
	// and groups of its tokens, if these set none.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be a DNS label such as staff"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(system|kubeadm|nova)$|^(kube|kubernetes|nova)-')",message="users and groups with the prefixes system:, kubeadm:, kube-, kubernetes-, nova: and nova- are those of Kubernetes and of this provider; choose another name"
	Name string `json:"name,omitempty"`

	// url is the URL of the issuer, exactly as in the claim iss of its tokens. API
	// servers read its keys from there, unless discoveryURL is set. If not set,
	// starVault is the issuer.
	// +optional
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	URL string `json:"url,omitempty"`

	// starVault is an OpenID Connect provider of StarVault, or of another server with
	// Vault's API. It sets the URL; users are named by the claim username. If not set,
	// url is the issuer.
	// +optional
	StarVault StarVaultIssuer `json:"starVault,omitempty,omitzero"`

	// discoveryURL is the URL of the issuer's discovery document, if API servers
	// cannot reach it below url. If not set, they use url.
	// +optional
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$`
	DiscoveryURL string `json:"discoveryURL,omitempty"`

	// certificateAuthority is the CA certificate of the issuer's server, in PEM. If
	// not set, the CA certificates of the node image apply.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="certificateAuthority must be certificates in PEM"
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// audiences are the accepted values of the claim aud. The first is the client ID
	// that the kubeconfig for users names.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Audiences []string `json:"audiences,omitempty"`

	// scopes are the scopes that the kubeconfig for users requests from the issuer, in
	// addition to openid. If not set, it requests no others.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Scopes []string `json:"scopes,omitempty"`

	// username is the name of the user. Defaults to the claim sub, and with starVault
	// to the claim username.
	// +optional
	Username ClaimMapping `json:"username,omitempty,omitzero"`

	// groups are the groups of the user. Defaults to the claim groups.
	// +optional
	Groups ClaimMapping `json:"groups,omitempty,omitzero"`

	// claimRules are CEL expressions over claims. API servers refuse a token for
	// which one is not true. If not set, each valid token is accepted.
	// +optional
	// +listType=map
	// +listMapKey=expression
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	ClaimRules []AuthenticationRule `json:"claimRules,omitempty"`

	// userRules are CEL expressions over user, which has username and groups. API
	// servers refuse a token for which one is not true, and always users and groups
	// whose names begin with system:, kubeadm:, kube-, kubernetes-, nova: or nova-. If
	// not set, there are no other rules.
	// +optional
	// +listType=map
	// +listMapKey=expression
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	UserRules []AuthenticationRule `json:"userRules,omitempty"`
}

// StarVaultIssuer is an OpenID Connect provider of a StarVault server.
type StarVaultIssuer struct {
	// server is the URL of the server, without a path.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^https://[A-Za-z0-9.:\[\]-]+$`
	Server string `json:"server,omitempty"`

	// namespace is the namespace of the provider. If not set, it is in the root
	// namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$`
	Namespace string `json:"namespace,omitempty"`

	// provider is the name of the provider below identity/oidc/provider. If not set,
	// tokens are those of the roles below identity/oidc/role, which the server issues
	// without a browser.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Provider string `json:"provider,omitempty"`
}

// ClaimMapping takes a name from a claim, or from a CEL expression over all claims.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="set either claim or expression"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix belongs to claim: an expression adds it itself"
type ClaimMapping struct {
	// claim is the name of the claim. If not set, expression is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Claim string `json:"claim,omitempty"`

	// prefix precedes the value of the claim. It keeps users of different issuers
	// apart: "" lets the issuer choose any name. Defaults to the name of the issuer
	// and a colon.
	// +optional
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=63
	Prefix *string `json:"prefix,omitempty"`

	// expression is a CEL expression over claims, such as claims.email. If not set,
	// claim is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression,omitempty"`
}

// AuthenticationRule is a condition for a token.
type AuthenticationRule struct {
	// expression is a CEL expression that must be true.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression,omitempty"`

	// message is written to the log of the API server if it is not true. If not set,
	// the log contains the expression.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// Used reports whether users can sign in with tokens.
func (a *AuthenticationSpec) Used() bool { return len(a.Issuers) > 0 }

// GetURL returns the URL of the issuer, as its tokens name it.
func (i *TokenIssuer) GetURL() string {
	if i.URL != "" {
		return i.URL
	}
	parts := []string{i.StarVault.Server, "v1"}
	if i.StarVault.Namespace != "" {
		parts = append(parts, i.StarVault.Namespace)
	}
	parts = append(parts, "identity/oidc")
	if i.StarVault.Provider != "" {
		parts = append(parts, "provider", i.StarVault.Provider)
	}
	return strings.Join(parts, "/")
}

// GetUsername returns how a token names the user, with the default.
func (i *TokenIssuer) GetUsername() ClaimMapping {
	claim := "sub"
	if i.StarVault.Server != "" {
		claim = "username"
	}
	return i.mapping(i.Username, claim)
}

// GetGroups returns how a token names the user's groups, with the default.
func (i *TokenIssuer) GetGroups() ClaimMapping { return i.mapping(i.Groups, "groups") }

// mapping returns a mapping with its defaults.
func (i *TokenIssuer) mapping(m ClaimMapping, claim string) ClaimMapping {
	if m.Expression != "" {
		return m
	}
	m.Claim = cmp.Or(m.Claim, claim)
	if m.Prefix == nil {
		prefix := i.Name + ":"
		m.Prefix = &prefix
	}
	return m
}
