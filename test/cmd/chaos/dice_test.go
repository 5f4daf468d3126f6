package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestASeedGivesTheSameAgain(t *testing.T) {
	g := NewWithT(t)
	draw := func(seed, stream uint64) (drawn []trouble) {
		d := newDice(seed, stream)
		for range 200 {
			drawn = append(drawn, pick(d, troubles))
		}
		return drawn
	}
	first := draw(7, 1)
	g.Expect(draw(7, 1)).To(Equal(first))
	g.Expect(draw(8, 1)).NotTo(Equal(first))
	g.Expect(draw(7, 2)).NotTo(Equal(first))
	for _, w := range troubles {
		g.Expect(first).To(ContainElement(w.item), "everything happens")
	}
}

func TestBetween(t *testing.T) {
	g := NewWithT(t)
	d := newDice(1, 1)
	for range 1000 {
		g.Expect(d.between(time.Second, 3*time.Second)).To(And(BeNumerically(">=", time.Second), BeNumerically("<", 3*time.Second)))
	}
	g.Expect(d.one([]string{"b", "a"})).To(BeElementOf("a", "b"))
}

func TestVictims(t *testing.T) {
	planes, workers := []string{"p1", "p2", "p3"}, []string{"w1", "w2", "w3"}
	for name, test := range map[string]struct {
		hosts hosts
		want  []string
	}{
		"all are well":          {hosts{planes: planes, workers: workers, spare: true}, []string{"p1", "p2", "p3", "w1", "w2", "w3"}},
		"no member to spare":    {hosts{planes: planes, workers: workers}, workers},
		"a plane is disturbed":  {hosts{planes: planes, workers: workers, spare: true, disturbed: []string{"p2"}}, workers},
		"a worker is disturbed": {hosts{planes: planes, workers: workers, spare: true, disturbed: []string{"w1"}}, planes},
		"one of each is":        {hosts{planes: planes, workers: workers, spare: true, disturbed: []string{"w1", "p1"}}, nil},
		"a removed host was":    {hosts{planes: planes, workers: workers, spare: true, disturbed: []string{"p0"}}, []string{"p1", "p2", "p3", "w1", "w2", "w3"}},
		"the only worker stays": {hosts{planes: planes, workers: []string{"w1"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(test.hosts.victims()).To(Equal(test.want))
		})
	}
}
