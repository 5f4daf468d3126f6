package gitops

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// repository is a user's clone of the management repository.
type repository struct {
	dir string
	// aside is a folder for files that are not to be committed yet.
	aside string
	// kubeconfig is that of the management cluster.
	kubeconfig string
	// key is the file with the key that credentials are encrypted for.
	key string
}

// run runs a program in the clone and returns its output.
func (r repository) run(ctx context.Context, program string, args ...string) string {
	GinkgoHelper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=person", "GIT_AUTHOR_EMAIL=person@localhost",
		"GIT_COMMITTER_NAME=person", "GIT_COMMITTER_EMAIL=person@localhost", "SOPS_AGE_KEY_FILE="+r.key,
		"NO_PROXY=*", "KUBECONFIG="+r.kubeconfig, "KUBECACHEDIR="+filepath.Join(b.Dir, "kubectl"),
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "CLUSTER_TOPOLOGY=true", "XDG_CONFIG_HOME="+filepath.Join(b.Dir, "kubectl"))
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := b.Inside(cmd.Run)
	_, _ = fmt.Fprintf(GinkgoWriter, "$ %s %s\n%s%s\n", filepath.Base(program), strings.Join(args, " "), out.String(), errs.String())
	Expect(err).NotTo(HaveOccurred(), "%s %s: %s", program, args, errs.String())
	return out.String()
}

// begin creates a repository from the sample and clones it. The clone is deleted when the caller's
// spec ends.
func begin(ctx context.Context) repository {
	GinkgoHelper()
	bare, err := b.Repository(ctx, "management")
	Expect(err).NotTo(HaveOccurred())
	all := GinkgoT().TempDir()
	r := repository{
		dir: filepath.Join(all, "management"), aside: filepath.Join(all, "aside"),
		kubeconfig: b.Kubeconfig(), key: filepath.Join(all, "age.agekey"),
	}
	Expect(os.Mkdir(r.dir, 0o755)).To(Succeed())
	r.run(ctx, "git", "clone", "--quiet", bare, ".")
	r.run(ctx, filepath.Join(tools.Root(), "hack", "gitops.sh"), r.dir)
	return r
}

// edit replaces texts in a file, each of which must be there.
func (r repository) edit(path string, replacements ...string) {
	GinkgoHelper()
	path = filepath.Join(r.dir, path)
	data, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	text := string(data)
	for i := 0; i < len(replacements); i += 2 {
		Expect(text).To(ContainSubstring(replacements[i]), "%s is to be edited", path)
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
}

// commit commits all that was changed and pushes it.
func (r repository) commit(ctx context.Context, message string) {
	GinkgoHelper()
	r.run(ctx, "git", "add", "--all")
	r.run(ctx, "git", "commit", "--quiet", "--message", message)
	r.run(ctx, "git", "push", "--quiet", "origin", "HEAD:main")
}

// look lets Flux look at once.
func (r repository) look(ctx context.Context) {
	GinkgoHelper()
	r.run(ctx, programs["kubectl"], "annotate", "gitrepository", "management", "--namespace", fluxNamespace, "--overwrite",
		"reconcile.fluxcd.io/requestedAt="+time.Now().Format(time.RFC3339Nano))
}

// head is the commit that the clone is at.
func (r repository) head(ctx context.Context) string {
	GinkgoHelper()
	return strings.TrimSpace(r.run(ctx, "git", "rev-parse", "HEAD"))
}
