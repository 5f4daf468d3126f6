package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// signsIn sets an issuer, with a change.
func signsIn(in *Input, change func(*bootstrapv1.TokenIssuer)) {
	issuer := bootstrapv1.TokenIssuer{Name: "staff", URL: "https://sso.example/realms/staff", Audiences: []string{"kubernetes"}}
	if change != nil {
		change(&issuer)
	}
	in.Platform.Authentication.Issuers = append(in.Platform.Authentication.Issuers, issuer)
}

// An API server with an invalid configuration does not start, so it is refused
// before any machine has it, and before joining machines read kubeadm's.
func TestAuthenticationIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"OldVersion": {func(in *Input) { in.Version = "v1.33.9"; signsIn(in, nil) }, "needs Kubernetes v1.34 or newer, and the version is v1.33.9"},
		"Rule": {func(in *Input) {
			signsIn(in, nil)
			signsIn(in, func(i *bootstrapv1.TokenIssuer) {
				i.Name, i.URL = "guests", "https://sso.example/realms/guests"
				i.ClaimRules = []bootstrapv1.AuthenticationRule{{Expression: "claims.plan =="}}
			})
		}, "issuer guests.claimValidationRules[0].expression"},
		"RuleIsNoCondition": {func(in *Input) {
			signsIn(in, func(i *bootstrapv1.TokenIssuer) {
				i.UserRules = []bootstrapv1.AuthenticationRule{{Expression: "user.username"}}
			})
		}, "issuer staff.userValidationRules[2].expression"},
		"SameURL": {func(in *Input) {
			signsIn(in, nil)
			signsIn(in, func(i *bootstrapv1.TokenIssuer) { i.Name = "again" })
		}, "issuer again.issuer.url"},
		"ServiceAccounts": {func(in *Input) {
			in.Network.DNSDomain = "blue.local"
			signsIn(in, func(i *bootstrapv1.TokenIssuer) { i.URL = "https://kubernetes.default.svc.blue.local" })
		}, "issuer staff.issuer.url"},
		"ServiceAccountsOfAnArgument": {func(in *Input) {
			in.Platform.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "service-account-issuer", Value: ptr.To("https://sso.example/realms/staff")}}
			signsIn(in, nil)
		}, "issuer staff.issuer.url"},
		"Certificate": {func(in *Input) {
			signsIn(in, func(i *bootstrapv1.TokenIssuer) {
				i.CertificateAuthority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
			})
		}, "issuer staff.issuer.certificateAuthority"},
	} {
		t.Run(name, func(t *testing.T) {
			in := facts(Init, tc.change)
			_, rendering := Render(in)
			_, stored := ClusterConfiguration(&in)
			for _, err := range []error{rendering, stored} {
				var refused *RenderError
				if !errors.As(err, &refused) || refused.Field != "platform.authentication" || !strings.Contains(refused.Problem, tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
			}
		})
	}
}

// Workers have no API server.
func TestWorkersHaveNoIssuers(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) { signsIn(in, nil) })
	for _, file := range configOf(t, render(t, in)).Machine.Files {
		if strings.HasPrefix(file.Path, "/etc/kubernetes/authentication") {
			t.Errorf("a worker has %s", file.Path)
		}
	}
}
