package bed

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/keyutil"

	"github.com/nova-platform/cluster-api-provider-nova/test/cakeys"
)

func TestCAKeysInFilesAndMemory(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "ca.key")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, key, 0o600); err != nil {
		t.Fatal(err)
	}
	// The finder itself is in the memory of this process, so another one has the key.
	holder := exec.CommandContext(t.Context(), "sleep", "infinity")
	holder.Env = []string{"KEY=" + string(key)}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	for name, tc := range map[string]struct {
		authority *authority
		want      bool
	}{"Known": {ca, true}, "Other": {other, false}} {
		t.Run(name, func(t *testing.T) {
			finder, err := cakeys.New(tc.authority.cert)
			if err != nil {
				t.Fatal(err)
			}
			places, err := filesWith(dir, finder)
			if err != nil || (len(places) == 1 && places[0] == "file "+path) != tc.want {
				t.Errorf("%v, %v", places, err)
			}
			found, err := memoryWith(holder.Process.Pid, finder)
			if err != nil || found != tc.want {
				t.Errorf("in memory: %t, %v", found, err)
			}
		})
	}
}
