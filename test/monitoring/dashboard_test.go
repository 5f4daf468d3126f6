package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// variable is a variable of a dashboard.
type variable struct {
	Name       string `json:"name"`
	Definition string `json:"definition"`
}

// dashboard contains the fields of a dashboard that these tests read.
type dashboard struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Templating struct {
		List []variable `json:"list"`
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

// dashboards returns all dashboards by their UID, which is also their file's
// name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(sample("dashboards", "*.json"))
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]dashboard{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		var d dashboard
		g.Expect(json.Unmarshal(data, &d)).To(Succeed())
		g.Expect(filepath.Base(file)).To(Equal(d.UID + ".json"))
		found[d.UID] = d
	}
	g.Expect(found).To(And(HaveLen(3), HaveKey("nova-fleet"), HaveKey("nova-cluster"), HaveKey("nova-hypervisor")))
	return found
}

// panels returns the expressions of the dashboards as Grafana sends them if all
// values of a variable are selected. A variable that is compared with = has the
// value that the test's objects have.
func panels(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for uid, d := range dashboards(t) {
		replaced := []string{"$__rate_interval", "5m"}
		for _, v := range d.Templating.List {
			replaced = append(replaced, "=\"$"+v.Name, "=\""+selected[v.Name], "$"+v.Name, ".*")
		}
		send := strings.NewReplacer(replaced...)
		for _, v := range d.Templating.List {
			if selector, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				found[uid+" variable "+v.Name] = send.Replace(selector[:strings.LastIndex(selector, ",")])
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				found[uid+" panel "+p.Title+" "+target.RefID] = send.Replace(target.Expr)
			}
		}
	}
	return found
}

// selected are the values of variables with one value.
var selected = map[string]string{"namespace": "team", "cluster": "blue"}

func TestDashboards(t *testing.T) {
	for uid, d := range dashboards(t) {
		t.Run(uid, func(t *testing.T) { checkDashboard(t, d) })
	}
	for at, expression := range panels(t) {
		NewWithT(t).Expect(expression).NotTo(ContainSubstring("$"), "%s has a variable that is not there", at)
	}
}

func checkDashboard(t *testing.T, d dashboard) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(d.Title).NotTo(BeEmpty())
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
}

// Each dashboard leads to the two others, and a link sets only variables that
// the other dashboard has.
func TestDashboardsLeadToEachOther(t *testing.T) {
	g := NewWithT(t)
	all := dashboards(t)
	for uid, d := range all {
		text, err := os.ReadFile(sample("dashboards", uid+".json"))
		g.Expect(err).NotTo(HaveOccurred())
		leads := map[string]bool{}
		for _, match := range regexp.MustCompile(`"/d/([a-z-]+)\?([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			g.Expect(all).To(HaveKey(match[1]), uid)
			leads[match[1]] = true
			for _, set := range regexp.MustCompile(`var-(\w+)=`).FindAllStringSubmatch(match[2], -1) {
				has := slices.ContainsFunc(all[match[1]].Templating.List, func(v variable) bool { return v.Name == set[1] })
				g.Expect(has).To(BeTrue(), "%s sets the variable %s of %s, which does not exist", uid, set[1], match[1])
			}
		}
		g.Expect(leads).To(HaveLen(2), "%s: %s", uid, d.Title)
	}
}
