package bootstrap

import (
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

func TestConfigurationManager(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) {
		in.Platform.ConfigurationManager = bootstrapv1.ConfigurationManagerSpec{Server: "puppet.corp"}
		in.Enrollment = &Enrollment{Certname: "n.uid", Token: "t0ken", Extensions: map[string]string{"pp_uuid": "uid", "pp_role": "worker"}}
	})
	for _, ca := range []string{"", "no certificate"} {
		in.PlatformData.ConfigurationManagerCA = []byte(ca)
		if _, err := Render(in); err == nil || !strings.Contains(err.Error(), "platform.configurationManager.trustedCAFrom") {
			t.Errorf("got error %v for the CA %q", err, ca)
		}
	}
	config := &nodeconfig.Config{}
	in.Platform.ConfigurationManager = bootstrapv1.ConfigurationManagerSpec{}
	if err := addConfigurationManager(&in, config); err != nil || config.ConfigurationManager != nil {
		t.Errorf("got %+v (%v) without a server", config.ConfigurationManager, err)
	}
}
