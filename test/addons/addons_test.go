package addons

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// The set refers to the chart by its name and version, and the chart's default for the image's tag
// is the version of the program.
func TestChartsHaveTheVersionsThatAreServed(t *testing.T) {
	for _, a := range slices.Concat(all, previous) {
		if a.Chart.Name == "" {
			continue
		}
		t.Run(a.Module+" "+a.Chart.Version, func(t *testing.T) {
			g := NewWithT(t)
			files, err := a.Chart.Files(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(files).To(HaveKey("values.yaml"))
			meta := map[string]any{}
			g.Expect(yaml.Unmarshal([]byte(files["Chart.yaml"]), &meta)).To(Succeed())
			g.Expect(meta).To(And(
				HaveKeyWithValue("name", a.Chart.Name), HaveKeyWithValue("version", a.Chart.Version),
				HaveKeyWithValue("appVersion", a.Chart.AppVersion)))
		})
	}
}

func TestUnknownModuleIsNamed(t *testing.T) {
	g := NewWithT(t)
	_, err := Select("metrics-server", "none")
	g.Expect(err).To(MatchError(ContainSubstring("none")))
	addons, err := Select("metrics-server", "local-path")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Images(addons)).To(HaveLen(3))
}

// An upgrade is tested from the previous version, which has the same chart.
func TestPreviousVersionsDiffer(t *testing.T) {
	g := NewWithT(t)
	current, err := Select("local-path", "descheduler", "prometheus-operator", "alertmanager", "keda", "cert-manager", "ingress-internal")
	g.Expect(err).NotTo(HaveOccurred())
	before := Previous(current)
	g.Expect(before).To(HaveLen(len(current)))
	g.Expect(before[0]).To(Equal(current[0]), "it has no previous version")
	for i := range before[1:] {
		was, is := before[1+i], current[1+i]
		g.Expect(was.Module).To(Equal(is.Module))
		g.Expect(was.Chart.Name).To(Equal(is.Chart.Name))
		g.Expect(was.Chart.Version).NotTo(Equal(is.Chart.Version))
		for _, image := range was.Images {
			g.Expect(Images(current)).NotTo(ContainElement(HaveField("Ref", image.Ref)))
		}
	}
}

// Helm stores the compressed chart in a Secret, which holds 1 MiB at most.
func TestReleasesOfComposedChartsFitIntoASecret(t *testing.T) {
	for _, a := range all {
		if a.Chart.Composed == nil {
			continue
		}
		t.Run(a.Module, func(t *testing.T) {
			g := NewWithT(t)
			files, err := a.Chart.Files(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			var packed bytes.Buffer
			writer := gzip.NewWriter(&packed)
			for _, text := range files {
				// Helm stores the content of files in base64.
				_, err := base64.NewEncoder(base64.StdEncoding, writer).Write([]byte(text))
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(writer.Close()).To(Succeed())
			g.Expect(base64.StdEncoding.EncodedLen(packed.Len())).To(BeNumerically("<", 1<<20))
		})
	}
}
