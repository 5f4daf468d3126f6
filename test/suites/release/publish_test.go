package release

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// describePublished publishes two releases, and verifies them with cosign's library.
func describePublished() {
	It("has the same bytes when a copy of the work tree is built", func(ctx context.Context) {
		again, dir := copyTree(ctx), GinkgoT().TempDir()
		build(ctx, again, dir, first, "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
		for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig"} {
			one, err := os.ReadFile(filepath.Join(out, name))
			Expect(err).NotTo(HaveOccurred())
			Expect(os.ReadFile(filepath.Join(dir, name))).To(Equal(one))
		}
		for _, folder := range []string{out, dir} {
			run(ctx, command{args: []string{"sh", "-euc", `cd "$0"; sha256sum --quiet --check SHA256SUMS`, folder}})
		}
		passed("reproducible")
	})

	It("names its images by their digests", func() {
		files, err := filepath.Glob(filepath.Join(out, "repository", "*", first, "*-components.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(12), "two of each provider")
		for _, file := range files {
			data, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			found := regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(string(data), -1)
			Expect(found).To(HaveLen(1), file)
			Expect(found[0][1]).To(MatchRegexp(`^%s/nova-[a-z-]+:%s@sha256:[0-9a-f]{64}$`, regexp.QuoteMeta(images), first))
		}
	})

	It("is published with a login over TLS, and refused without", func(ctx context.Context) {
		said, err := try(ctx, publication("DOCKER_CONFIG="+login, "GITLAB_TOKEN="+scope))
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("is signed by an unknown CA: name the file of the CA with -ca"))
		wrong, err := public.Login("wr0ng")
		Expect(err).NotTo(HaveOccurred())
		said, err = try(ctx, publication("CA="+certificates(), "DOCKER_CONFIG="+wrong, "GITLAB_TOKEN="+scope))
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring(`run "docker login %s"`, public.Address), Not(ContainSubstring("wr0ng"))))
		said, err = try(ctx, publication("CA="+certificates(), "DOCKER_CONFIG="+login))
		Expect(err).To(HaveOccurred(), "without a token")
		Expect(said).To(ContainSubstring("set GITLAB_TOKEN"))
		publish(ctx, first)
	})

	It("is followed by the next version, which leaves its files alone", func(ctx context.Context) {
		build(ctx, tools.Root(), out, next)
		publish(ctx, next)
	})

	It("has manifests for Cluster API Operator", describesProviders)

	It("is signed, and has provenance and an SBOM", verifySignatures)
}

// copyTree copies the files of the work tree to another folder, where Git finds the
// same commit.
func copyTree(ctx context.Context) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	run(ctx, command{args: []string{"sh", "-euc", `
		cd "$0"
		git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | xargs -0 cp -a --parents -t "$1"
		printf 'gitdir: %s\n' "$(git -c safe.directory='*' rev-parse --absolute-git-dir)" >"$1/.git"`, tools.Root(), dir}})
	return dir
}

// certificates writes the CAs of the registry and of the GitLab to a file.
func certificates() string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
	other, err := os.ReadFile(web.ca)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(file, append(other, public.CA...), 0o600)).To(Succeed())
	return file
}

// publication is the command of "make publish".
func publication(env ...string) command {
	c := web.reach(filepath.Join(tools.Root(), "hack", "publish.sh"), out)
	c.env = append([]string{"REGISTRY=" + images, "URL=" + packages}, env...)
	return c
}

// releaseFiles are the files of a release that the next one replaces: the configuration of
// clusterctl, and the providers for Cluster API Operator.
type releaseFiles struct{ clusterctl, operator string }

// published has the files of each published release by its version.
var published = map[string]releaseFiles{}

// publish publishes the release that was built last.
func publish(ctx context.Context, version string) {
	GinkgoHelper()
	run(ctx, publication("CA="+certificates(), "DOCKER_CONFIG="+login, "GITLAB_TOKEN="+scope))
	clusterctl, err := os.ReadFile(filepath.Join(out, "clusterctl-url.yaml"))
	Expect(err).NotTo(HaveOccurred())
	operator, err := os.ReadFile(filepath.Join(out, "operator.yaml"))
	Expect(err).NotTo(HaveOccurred())
	published[version] = releaseFiles{clusterctl: string(clusterctl), operator: string(operator)}
}

func verifySignatures(ctx context.Context) {
	verify := func(what, public string, args ...string) command {
		return command{inside: true, env: []string{"DOCKER_CONFIG=" + login}, args: append([]string{
			programs["cosign"], what, "-key", public, "-registry-cacert", certificates(),
		}, args...)}
	}
	const slsa = "https://slsa.dev/provenance/v1"
	other := newKey(GinkgoT().TempDir())
	for _, version := range []string{first, next} {
		run(ctx, verify("verify", key+".pub", images+"/nova-vsphere:"+version))
		run(ctx, verify("verify", key+".pub", images+"/infrastructure-nova-vsphere:"+version))
		run(ctx, verify("verify", key+".pub", images+"/catalogue:"+version))
		run(ctx, verify("verify-attestation", key+".pub", "-type", slsa, images+"/nova-vsphere:"+version))
		_, err := try(ctx, verify("verify", other+".pub", images+"/nova-vsphere:"+version))
		Expect(err).To(HaveOccurred(), "another key")
		_, err = try(ctx, verify("verify-attestation", other+".pub", "-type", slsa, images+"/nova-vsphere:"+version))
		Expect(err).To(HaveOccurred(), "another key")
	}
	sums := filepath.Join(out, "SHA256SUMS")
	run(ctx, command{args: []string{programs["cosign"], "verify-blob", "-key", key + ".pub", "-signature", sums + ".sig", sums}})
	_, err := try(ctx, command{args: []string{programs["cosign"], "verify-blob", "-key", other + ".pub", "-signature", sums + ".sig", sums}})
	Expect(err).To(HaveOccurred(), "another key")
	index := manifest(ctx, "nova-vsphere", next)
	Expect(index.Manifests).To(HaveLen(1))
	for _, part := range index.Manifests {
		Expect(part.Platform.Architecture).To(Equal(runtime.GOARCH))
		run(ctx, verify("verify", key+".pub", images+"/nova-vsphere@"+part.Digest))
		// This registry has no list of referrers, so they have a tag.
		found := manifest(ctx, "nova-vsphere", strings.Replace(part.Digest, ":", "-", 1))
		Expect(found.Manifests).To(ContainElement(HaveField("ArtifactType", "application/vnd.cyclonedx+json")))
	}
	passed("signed")
}

// index is the part of an OCI index that the specs read.
type index struct {
	Manifests []struct {
		Digest       string
		ArtifactType string
		Platform     struct{ Architecture string }
	}
}

// manifest reads an index of the registry.
func manifest(ctx context.Context, image, reference string) index {
	GinkgoHelper()
	status, data, err := public.Get(ctx, "/v2/nova/"+image+"/manifests/"+reference, "application/vnd.oci.image.index.v1+json")
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusOK))
	var found index
	Expect(json.Unmarshal(data, &found)).To(Succeed())
	return found
}
