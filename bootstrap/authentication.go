package bootstrap

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// authenticationDir is mounted in the pod of the API server as a whole: a mounted
	// file would stay the old one when it is replaced.
	authenticationDir  = "/etc/kubernetes/authentication"
	authenticationFile = authenticationDir + "/config.yaml"

	authenticationField = "platform.authentication"

	// authenticationMinor is the first minor version of Kubernetes 1 with version v1
	// of the configuration.
	authenticationMinor = 34
)

// reserved are the prefixes of users and groups of Kubernetes, kubeadm and this
// provider. Some of them administrate the cluster: the groups system:masters,
// kubeadm:cluster-admins and nova:cluster-admins, the users of the managers, and
// kube-apiserver-kubelet-client.
const reserved = `['system:', 'kubeadm:', 'kube-', 'kubernetes-', 'nova:', 'nova-'].exists(p, %s.startsWith(p))`

// apiServerCode is the API server's own code for its configuration. It takes
// milliseconds to make, and a control plane checks its configuration often.
var apiServerCode = sync.OnceValues(func() (*runtime.Scheme, authenticationcel.Compiler) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme, authenticationcel.NewDefaultCompiler()
})

// addAuthentication adds the file with the issuers of tokens. It exists without
// issuers too: if users add some while a machine joins, the machine reads the
// argument for it from the cluster, and its API server must start.
func addAuthentication(in *Input, config *nodeconfig.Config) error {
	if !in.Mode.controlPlane() || !in.Platform.Authentication.Used() && minorOf(in.Version) < authenticationMinor {
		return nil
	}
	content, err := authenticationConfiguration(in)
	if err != nil {
		return err
	}
	config.Machine.Files = append(config.Machine.Files, newFile(authenticationFile, "0644", content))
	return nil
}

// authenticationConfiguration returns the AuthenticationConfiguration of the API
// server. It is checked as the API server does at its start, and refused with the
// issuer's field: an API server does not start with an invalid one.
func authenticationConfiguration(in *Input) ([]byte, error) {
	if minorOf(in.Version) < authenticationMinor {
		return nil, renderErrorf(authenticationField, "needs Kubernetes v1.%d or newer, and the version is %s", authenticationMinor, in.Version)
	}
	configuration := &apiserverv1.AuthenticationConfiguration{
		JWT: []apiserverv1.JWTAuthenticator{}, Anonymous: &apiserverv1.AnonymousAuthConfig{Enabled: true},
	}
	if in.Platform.Authentication.Used() {
		// Requests of kubelets, load balancers and kubeadm without credentials.
		configuration.Anonymous.Conditions = []apiserverv1.AnonymousAuthCondition{{Path: "/livez"}, {Path: "/readyz"}, {Path: "/healthz"}}
	}
	configuration.APIVersion, configuration.Kind = apiserverv1.SchemeGroupVersion.String(), "AuthenticationConfiguration"
	for i := range in.Platform.Authentication.Issuers {
		configuration.JWT = append(configuration.JWT, jwtAuthenticator(&in.Platform.Authentication.Issuers[i]))
	}
	if err := checkAuthentication(in, configuration); err != nil {
		return nil, err
	}
	content, err := yaml.Marshal(configuration)
	if err != nil {
		return nil, fmt.Errorf("writing AuthenticationConfiguration: %w", err)
	}
	return content, nil
}

// jwtAuthenticator returns the API server's settings of an issuer.
func jwtAuthenticator(issuer *bootstrapv1.TokenIssuer) apiserverv1.JWTAuthenticator {
	out := apiserverv1.JWTAuthenticator{
		Issuer: apiserverv1.Issuer{
			URL: issuer.GetURL(), CertificateAuthority: issuer.CertificateAuthority, Audiences: issuer.Audiences,
		},
		ClaimMappings: apiserverv1.ClaimMappings{Username: claim(issuer.GetUsername()), Groups: claim(issuer.GetGroups())},
		UserValidationRules: []apiserverv1.UserValidationRule{
			{Expression: "!" + fmt.Sprintf(reserved, "user.username"), Message: "the user's name begins with a reserved prefix"},
			{Expression: "!has(user.groups) || !user.groups.exists(g, " + fmt.Sprintf(reserved, "g") + ")", Message: "the name of a group begins with a reserved prefix"},
		},
	}
	if issuer.DiscoveryURL != "" {
		out.Issuer.DiscoveryURL = &issuer.DiscoveryURL
	}
	if len(issuer.Audiences) > 1 {
		out.Issuer.AudienceMatchPolicy = apiserverv1.AudienceMatchPolicyMatchAny
	}
	for _, rule := range issuer.ClaimRules {
		out.ClaimValidationRules = append(out.ClaimValidationRules, apiserverv1.ClaimValidationRule{Expression: rule.Expression, Message: rule.Message})
	}
	for _, rule := range issuer.UserRules {
		out.UserValidationRules = append(out.UserValidationRules, apiserverv1.UserValidationRule{Expression: rule.Expression, Message: rule.Message})
	}
	return out
}

func claim(m bootstrapv1.ClaimMapping) apiserverv1.PrefixedClaimOrExpression {
	return apiserverv1.PrefixedClaimOrExpression{Claim: m.Claim, Prefix: m.Prefix, Expression: m.Expression}
}

// minorOf returns the minor version of Kubernetes 1, or 0.
func minorOf(version string) (minor int) {
	if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
		return 0
	}
	return minor
}

// ownIssuers returns the issuers of the tokens of service accounts, which cannot be
// issuers of users.
func ownIssuers(in *Input) []string {
	var own []string
	for _, a := range in.Platform.APIServer.ExtraArgs {
		if a.Name == "service-account-issuer" && a.Value != nil {
			own = append(own, *a.Value)
		}
	}
	if len(own) > 0 {
		return own
	}
	return []string{"https://kubernetes.default.svc." + cmp.Or(in.Network.DNSDomain, defaultDNSDomain)}
}

// checkAuthentication checks a configuration with the code of the API server.
func checkAuthentication(in *Input, written *apiserverv1.AuthenticationConfiguration) error {
	scheme, compiler := apiServerCode()
	configuration := &apiserver.AuthenticationConfiguration{}
	if err := scheme.Convert(written, configuration, nil); err != nil {
		return fmt.Errorf("converting AuthenticationConfiguration: %w", err)
	}
	problems := validation.ValidateAuthenticationConfiguration(compiler, configuration, ownIssuers(in))
	if len(problems) == 0 {
		return nil
	}
	first := problems[0]
	at := first.Field
	for i := range in.Platform.Authentication.Issuers {
		at = strings.Replace(at, fmt.Sprintf("jwt[%d]", i), "issuer "+in.Platform.Authentication.Issuers[i].Name, 1)
	}
	return renderErrorf(authenticationField, "%s: %s", at, first.ErrorBody())
}
