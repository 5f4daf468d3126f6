package monitoring

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// dashboard contains the fields of a dashboard that these tests read.
type dashboard struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			RefID string `json:"refId"`
			Expr  string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func loadDashboard(t *testing.T) dashboard {
	t.Helper()
	g := NewWithT(t)
	data, err := os.ReadFile(sample("dashboards", "nova.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var d dashboard
	g.Expect(json.Unmarshal(data, &d)).To(Succeed())
	return d
}

// panels returns the expressions of the dashboard as Grafana would send them.
func panels(t *testing.T) map[string]string {
	t.Helper()
	d := loadDashboard(t)
	replaced := []string{"$__rate_interval", "5m"}
	found := map[string]string{}
	for _, v := range d.Templating.List {
		replaced = append(replaced, "$"+v.Name, ".*")
	}
	send := strings.NewReplacer(replaced...)
	for _, v := range d.Templating.List {
		if selector, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			found["variable "+v.Name] = send.Replace(selector[:strings.LastIndex(selector, ",")])
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found["panel "+p.Title+" "+target.RefID] = send.Replace(target.Expr)
		}
	}
	return found
}

func TestDashboard(t *testing.T) {
	g := NewWithT(t)
	d := loadDashboard(t)
	g.Expect(d.Title).NotTo(BeEmpty())
	g.Expect(d.UID).NotTo(BeEmpty())
	ids, titles := map[int]bool{}, map[string]bool{}
	for i, p := range d.Panels {
		g.Expect(ids).NotTo(HaveKey(p.ID))
		g.Expect(titles).NotTo(HaveKey(p.Title))
		ids[p.ID], titles[p.Title] = true, true
		if p.Type != "row" {
			g.Expect(p.Targets).NotTo(BeEmpty(), p.Title)
		}
		g.Expect(p.GridPos.X+p.GridPos.W).To(BeNumerically("<=", 24), p.Title)
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			apart := a.X >= b.X+b.W || b.X >= a.X+a.W || a.Y >= b.Y+b.H || b.Y >= a.Y+a.H
			g.Expect(apart).To(BeTrue(), "%s lies over %s", p.Title, other.Title)
		}
	}
	for at, expression := range panels(t) {
		g.Expect(expression).NotTo(ContainSubstring("$"), "%s has a variable that is not there", at)
	}
}
