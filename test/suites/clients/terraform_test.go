package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// providerVersion is the version in hack/tools/terraform-provider-vsphere.
const providerVersion = "1.26.0"

// Terraform and its provider take minutes to build, so they are there only where
// all suites run.
var _ = func() bool {
	if !everything {
		return false
	}
	return Describe("Terraform", func() {
		var (
			s *site
			// terraform runs a command in the directory of the configuration, with
			// variables, and returns the output and the exit code.
			terraform func(ctx context.Context, variables map[string]string, args ...string) (string, int)
			apply     func(ctx context.Context, variables map[string]string) string
		)

		BeforeEach(func(ctx context.Context) {
			programs := build(ctx, "terraform", "terraform-provider-vsphere")
			s = startSite(ctx)
			dir := filepath.Join(s.home, "configuration")
			mirror := filepath.Join(s.home, "mirror")
			plugin := filepath.Join(mirror, "registry.terraform.io", "hashicorp", "vsphere", providerVersion, runtime.GOOS+"_"+runtime.GOARCH)
			Expect(os.MkdirAll(plugin, 0o700)).To(Succeed())
			Expect(os.Symlink(programs["terraform-provider-vsphere"], filepath.Join(plugin, "terraform-provider-vsphere_v"+providerVersion))).To(Succeed())
			// Terraform installs providers from this directory only, and requests
			// neither a registry nor the service for new versions.
			settings := filepath.Join(s.home, "terraformrc")
			Expect(os.WriteFile(settings, fmt.Appendf(nil,
				"disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600)).To(Succeed())
			Expect(os.CopyFS(dir, os.DirFS("testdata"))).To(Succeed())

			password, _ := s.Userinfo().Password()
			terraform = func(ctx context.Context, variables map[string]string, args ...string) (string, int) {
				GinkgoHelper()
				env := []string{
					"TF_CLI_CONFIG_FILE=" + settings, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "SSL_CERT_FILE=" + s.ca,
					"VSPHERE_SERVER=" + s.Address, "VSPHERE_USER=" + s.Userinfo().Username(), "VSPHERE_PASSWORD=" + password,
					"TF_VAR_template=" + vcenter.DefaultTemplate,
				}
				for name, value := range variables {
					env = append(env, "TF_VAR_"+name+"="+value)
				}
				return s.run(ctx, dir, env, programs["terraform"], append(args, "-no-color")...)
			}
			apply = func(ctx context.Context, variables map[string]string) string {
				GinkgoHelper()
				out, code := terraform(ctx, variables, "apply", "-auto-approve", "-input=false")
				Expect(code).To(BeZero(), out)
				return out
			}
			out, code := terraform(ctx, nil, "init", "-input=false")
			Expect(code).To(BeZero(), out)
		})

		It("creates VMs from a template, changes them in place, and destroys them", func(ctx context.Context) {
			variables := map[string]string{"cpus": "2", "memory": "2048", "data": "5", "color": "red"}
			plan := func(ctx context.Context) (string, int) {
				GinkgoHelper()
				return terraform(ctx, variables, "plan", "-detailed-exitcode", "-input=false")
			}
			By("planning")
			out, code := plan(ctx)
			Expect(code).To(Equal(2), "there are changes")
			Expect(out).To(ContainSubstring("Plan: 5 to add, 0 to change, 0 to destroy."))
			Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate), "a plan changes nothing")

			By("creating them")
			Expect(apply(ctx, variables)).To(ContainSubstring("5 added, 0 changed, 0 destroyed"))
			Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate, "tf-0", "tf-1"))
			refs := map[string]string{}
			for _, name := range []string{"tf-0", "tf-1"} {
				vm := s.vm(name)
				refs[name] = vm.Ref
				Expect(vm).To(And(HaveField("CPUs", 2), HaveField("MemoryMiB", 2048), HaveField("PoweredOn", BeTrue())))
				Expect(vm.DataDisksGiB).To(ConsistOf(BeEquivalentTo(5)))
				Expect(vm.NICs).To(ConsistOf(HaveField("Network", "DC0_DVPG0")))
				Expect(vm.ExtraConfig).To(HaveKeyWithValue("guestinfo.color", "red"))
			}
			out, code = plan(ctx)
			Expect(code).To(BeZero(), out)

			By("changing processors, memory, a disk and a setting")
			variables = map[string]string{"cpus": "4", "memory": "4096", "data": "8", "color": "green"}
			Expect(apply(ctx, variables)).To(ContainSubstring("0 added, 2 changed, 0 destroyed"))
			for name, ref := range refs {
				vm := s.vm(name)
				Expect(vm).To(And(HaveField("Ref", ref), HaveField("CPUs", 4), HaveField("MemoryMiB", 4096), HaveField("PoweredOn", BeTrue())))
				Expect(vm.DataDisksGiB).To(ConsistOf(BeEquivalentTo(8)))
				Expect(vm.ExtraConfig).To(HaveKeyWithValue("guestinfo.color", "green"))
			}
			out, code = plan(ctx)
			Expect(code).To(BeZero(), out)

			By("finding a change that was made outside of Terraform")
			Expect(s.SetGuestInfo(refs["tf-1"], "guestinfo.color", "blue")).To(Succeed())
			out, code = plan(ctx)
			Expect(code).To(Equal(2), out)
			Expect(out).To(ContainSubstring("Plan: 0 to add, 1 to change, 0 to destroy."))

			By("destroying all")
			out, code = terraform(ctx, variables, "destroy", "-auto-approve", "-input=false")
			Expect(code).To(BeZero(), out)
			Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate))
			Expect(s.has("[" + store + "] tf-0/tf-0.vmdk")).To(BeFalse())
			requests := s.Requests()
			Expect(requests).To(HaveKeyWithValue("Destroy_Task", 3), "two VMs and the folder")
			Expect(requests).To(HaveKey(HavePrefix("DELETE ")), "the tag and its category")
		})
	})
}()
