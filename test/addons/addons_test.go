package addons

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// The set refers to the chart by its name and version, and the chart's default for the image's tag
// is the version of the program.
func TestChartsHaveTheVersionsThatAreServed(t *testing.T) {
	for _, a := range all {
		t.Run(a.Module, func(t *testing.T) {
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
