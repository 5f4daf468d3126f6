package starvault

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// Managers are the managers that sign with a StarVault.
var Managers = []string{"nova-control-plane", "nova-bootstrap"}

// Prepare runs the script of the release, as an administrator does. It can be run again.
func (s *Server) Prepare(ctx context.Context) error {
	programs, err := tools.Paths(ctx, s.options.Log, "bao")
	if err != nil {
		return err
	}
	ca := s.path("administrator.crt")
	if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
		return fmt.Errorf("writing the CA: %w", err)
	}
	script := exec.CommandContext(ctx, filepath.Join(tools.Root(), "templates", "starvault", "starvault-setup.sh"))
	script.Env = append(os.Environ(), "CLI="+programs["bao"], "VAULT_ADDR="+s.URL, "VAULT_TOKEN="+s.RootToken, "VAULT_CACERT="+ca)
	return s.options.Inside(func() error {
		if out, err := script.CombinedOutput(); err != nil {
			return fmt.Errorf("preparing %s: %w: %s", s.options.Program, err, out)
		}
		return nil
	})
}

// Credentials returns new credentials of a manager, with the keys of its Secret.
func (s *Server) Credentials(ctx context.Context, manager string) (map[string]string, error) {
	root, err := s.Client()
	if err != nil {
		return nil, err
	}
	role, err := root.Logical().ReadWithContext(ctx, "auth/approle/role/"+manager+"/role-id")
	if err != nil {
		return nil, fmt.Errorf("reading the role of %s: %w", manager, err)
	}
	id, err := root.Logical().WriteWithContext(ctx, "auth/approle/role/"+manager+"/secret-id", nil)
	if err != nil {
		return nil, fmt.Errorf("making a secret ID of %s: %w", manager, err)
	}
	return map[string]string{"roleID": fmt.Sprint(role.Data["role_id"]), "secretID": fmt.Sprint(id.Data["secret_id"])}, nil
}
